"""Calls per second of 1, 2 and 4 threads on one model: Rushlight's module and its instances beside a session of ONNX Runtime.

    python benches/concurrency.py MODEL.pte [MODEL.onnx]

Each call uses one thread: threads of the caller compute at the same time, or wait. `module` is one module, whose calls take turns;
`instances` are as many instances of it as there are threads; `onnxruntime` is one session. The sides take turns in each round, and
the result of a side is its fastest round. The last line printed is a JSON list of {"threads", "side", "calls_per_s"}.
"""

import argparse
import json
import threading
import time

import numpy as np
import rushlight

THREADS = (1, 2, 4)
ROUNDS = 5
SECONDS = 2.0


def rate(call, count):
    """Calls per second of `count` threads that call at the same time. `call` gets the number of its thread."""
    start, end = threading.Barrier(count + 1), threading.Event()
    calls = [0] * count

    def work(number):
        start.wait()
        while not end.is_set():
            call(number)
            calls[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    time.sleep(SECONDS)
    end.set()
    for thread in threads:
        thread.join()
    return sum(calls) / (time.perf_counter() - began)


def inputs_of(module):
    random = np.random.default_rng(0)
    return [random.random(info.sizes).astype(info.dtype) for info in module.meta().inputs]


def onnx(path, inputs, expected):
    """A call of a session with one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = {given.name: array for given, array in zip(session.get_inputs(), inputs)}
    (got, *_) = session.run(None, feeds)
    assert np.allclose(got, expected, rtol=1e-2, atol=1e-3), "the two files are different models"
    return lambda _: session.run(None, feeds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("program", help="the .pte file")
    parser.add_argument("onnx", nargs="?", help="the same model as an .onnx file")
    options = parser.parse_args()
    module = rushlight.load(options.program, threads=1)
    inputs = inputs_of(module)
    expected = module(*inputs)
    expected = expected[0] if isinstance(expected, tuple) else expected
    session = onnx(options.onnx, inputs, expected) if options.onnx else None
    measured = []
    for count in THREADS:
        instances = module.instances(count)
        sides = {"module": lambda _: module(*inputs), "instances": lambda _: instances(*inputs)}
        if session:
            sides["onnxruntime"] = session
        fastest = dict.fromkeys(sides, 0.0)
        for _ in range(ROUNDS):
            for side, call in sides.items():
                fastest[side] = max(fastest[side], rate(call, count))
        for side, calls in fastest.items():
            print(f"{count} threads  {side:12} {calls:10.1f} calls/s", flush=True)
            measured.append({"threads": count, "side": side, "calls_per_s": calls})
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
