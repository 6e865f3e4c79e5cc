// Says which digit a picture shows.

import { useState } from 'react';
import { Tensor } from 'rushlight';

import { useModule } from './useModule.js';

const MODEL = new URL('../../cortex-m/digits.pte', import.meta.url).href;

export function Digits() {
  const { module, error } = useModule(MODEL);
  const [answer, setAnswer] = useState(null);

  async function classify(file) {
    const image = await createImageBitmap(file);
    const output = await module.forward([Tensor.fromImage(image, { size: [8, 8], channels: 1 })]);
    const scores = [...[output].flat()[0].data];
    setAnswer({ url: URL.createObjectURL(file), digit: scores.indexOf(Math.max(...scores)) });
  }

  if (error) {
    return <pre role="alert">{error.message}</pre>;
  }
  if (!module) {
    return <p>Loading …</p>;
  }
  return (
    <main>
      <label>
        A picture of a digit{' '}
        <input type="file" accept="image/*" onChange={event => event.target.files[0] && classify(event.target.files[0])} />
      </label>
      {answer && (
        <p>
          <img src={answer.url} alt="" width="96" style={{ imageRendering: 'pixelated' }} />{' '}
          <output>{answer.digit}</output>
        </p>
      )}
    </main>
  );
}
