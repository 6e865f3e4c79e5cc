"""Calls per second of 1, 2 and 4 threads on one model: Rushlight's module and its instances beside a session of ONNX Runtime.

    python benches/concurrency.py MODEL [MODEL.onnx]          MODEL is a .pt2 or a .pte file

Each call computes with one thread, which is the caller's. `one module` is one module, whose calls take turns. `instances` is one instance
of it per thread. `ONNX Runtime` is one session. The sides take turns in each round, and the result of a side is its fastest round. Prints a
table, and in the last line a JSON list of {"threads", "side", "calls_per_s"}.
"""

import argparse
import json
import pathlib
import threading
import time

import numpy as np
import rushlight

THREADS = (1, 2, 4)
ROUNDS = 5
SECONDS = 2.0


def rate(call, count):
    """Calls per second of `count` threads that call at the same time."""
    start, end = threading.Barrier(count + 1), threading.Event()
    calls = [0] * count

    def work(number):
        start.wait()
        while not end.is_set():
            call()
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


def load(path):
    """A module with one thread. A .pt2 file is compiled for the CPU."""
    source = rushlight.compile(path, backend="cpu").buffer if path.suffix == ".pt2" else path
    return rushlight.load(source, threads=1)


def inputs_of(module):
    random = np.random.default_rng(0)
    return [random.random(info.sizes).astype(info.dtype) for info in module.meta().inputs]


def onnx(path, inputs, expected):
    """A call of a session with one thread. The file must be the same model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = {given.name: array for given, array in zip(session.get_inputs(), inputs)}
    (got, *_) = session.run(None, feeds)
    if not np.allclose(got, expected, rtol=1e-2, atol=1e-3):
        raise SystemExit(f"{path} is another model: its results differ")
    return lambda: session.run(None, feeds)


def fastest(sides, count):
    """Calls per second of each side, which take turns."""
    rates = dict.fromkeys(sides, 0.0)
    for _ in range(ROUNDS):
        for side, call in sides.items():
            rates[side] = max(rates[side], rate(call, count))
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=pathlib.Path, help="a .pt2 or .pte file")
    parser.add_argument("onnx", nargs="?", help="the same model as an .onnx file")
    options = parser.parse_args()
    module = load(options.model)
    inputs = inputs_of(module)
    expected = module(*inputs)
    expected = expected[0] if isinstance(expected, tuple) else expected
    session = {"ONNX Runtime": onnx(options.onnx, inputs, expected)} if options.onnx else {}
    measured = []
    for count in THREADS:
        instances = module.instances(count)
        sides = {"one module": lambda: module(*inputs), "instances": lambda: instances(*inputs)} | session
        rates = fastest(sides, count)
        ratio = {"ratio": rates["instances"] / rates["ONNX Runtime"]} if session else {}
        cells = [str(count), *(f"{calls:.1f}" for calls in rates.values()), *(f"{value:.2f}" for value in ratio.values())]
        if not measured:
            print("| threads | " + " | ".join([*rates, *ratio]) + " |")
            print("|" + "--:|" * len(cells))
        print("| " + " | ".join(cells) + " |", flush=True)
        measured += [{"threads": count, "side": side, "calls_per_s": calls} for side, calls in rates.items()]
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
