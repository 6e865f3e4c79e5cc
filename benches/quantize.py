"""Quantizing a model with PT2E and ExecuTorch's compiler, timed, and the inputs that all sides see.

    python benches/quantize.py --inputs COUNT OUT.bin        pictures of 3x224x224, float32, as smooth as photographs
    python benches/quantize.py MODEL.pt2 INPUTS.bin COUNT OUT.pte

The second prints what each part took as JSON. The first COUNT inputs are the calibration.
"""

import json
import sys
import time

START = time.perf_counter()
SHAPE = (3, 224, 224)


def make_inputs(count, out):
    import numpy

    random = numpy.random.default_rng(0)
    with open(out, "wb") as file:
        for _ in range(count):
            coarse = numpy.kron(random.standard_normal((3, 14, 14)), numpy.ones((16, 16)))
            picture = 0.8 * coarse + 0.3 * random.standard_normal(SHAPE)
            file.write(picture.astype("float32").tobytes())


def quantize(model, inputs, count, out):
    import numpy
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    parts, last = {}, START

    def done(part):
        nonlocal last
        now = time.perf_counter()
        parts[part], last = now - last, now

    done("imports")
    program = torch.export.load(model)
    pictures = torch.from_numpy(numpy.fromfile(inputs, dtype="float32").reshape(-1, 1, *SHAPE))[:count]
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(program.module(check_guards=False), quantizer)
    done("prepare")
    with torch.no_grad():
        for picture in pictures:
            prepared(picture)
    done("calibrate")
    quantized = torch.export.export(convert_pt2e(prepared), (pictures[0],))
    done("convert")
    lowered = to_edge_transform_and_lower(quantized, partitioner=[XnnpackPartitioner()]).to_executorch()
    with open(out, "wb") as file:
        file.write(lowered.buffer)
    done("lower")
    print(json.dumps(parts))


if sys.argv[1] == "--inputs":
    make_inputs(int(sys.argv[2]), sys.argv[3])
else:
    quantize(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
