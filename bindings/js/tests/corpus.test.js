// Programs of ExecuTorch with the outputs that PyTorch recorded.

import assert from 'node:assert/strict';
import { relative } from 'node:path';
import { test } from 'node:test';

import { checkNear, record, recordPaths, root, rushlight, value } from './support.js';

for (const [lower, threads] of [['auto', 1], ['off', 1], ['cpu', 2]]) {
  test(`recorded calls, lowering ${lower}, ${threads} threads`, async () => {
    let calls = 0;
    for (const path of await recordPaths()) {
      const { program, data, bundled, backends, ...recorded } = await record(path);
      // Programs for XNNPACK run when they are translated; bundled programs are of the command line.
      if (bundled || (backends && lower === 'off')) {
        continue;
      }
      const module = await rushlight.Module.load(program, { data, lower, threads });
      for (const [at, call] of recorded.calls.entries()) {
        const outputs = await module.run(call.method, call.inputs.map(value));
        assert.equal(outputs.length, call.outputs.length);
        call.outputs.forEach((output, index) => {
          checkNear(outputs[index], output, call.tolerance, `${relative(root, path)}, call ${at}, output ${index}`);
        });
        calls += 1;
      }
      module.dispose();
    }
    assert.ok(calls > 80, `${calls} calls`);
  });
}
