"""Other engines' sides of the benchmarks: a process that loads a program into one of them and times it.

    python benches/peers/worker.py ENGINE      onnxruntime, openvino, openvino-bf16 or litert

Commands are lines, as `benches/executorch/worker.cpp` describes them, and each is answered by a line:

    open PROGRAM THREADS INPUT SIZES   INPUT holds one float32 tensor of these SIZES, as in 1x3x224x224
    input INPUT SIZES                  another tensor for the program that was opened: "ok"
    time CALLS NANOSECONDS
    outputs FILE

All engines have their defaults but for the number of threads; OpenVINO is asked for latency and told the type to compute in,
because its default may round to bfloat16, and leaves threads on the cores that the process has.
"""

import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np


def onnxruntime():
    import onnxruntime as library

    def load(path, threads):
        options = library.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda x: session.run(None, {name: x})[0]

    return load


def openvino(precision="f32"):
    import openvino as library

    core = library.Core()
    core.get_property("CPU", "FULL_DEVICE_NAME")  # loads the plugin, which belongs to no model

    def load(path, threads):
        properties = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False,
            "INFERENCE_PRECISION_HINT": precision,
        }
        request = core.compile_model(path, "CPU", properties).create_infer_request()
        return lambda x: request.infer([x], share_inputs=True, share_outputs=True)[0]

    return load


def litert():
    from ai_edge_litert.interpreter import Interpreter

    def load(path, threads):
        interpreter = Interpreter(path, num_threads=threads)
        interpreter.allocate_tensors()
        source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
        bytes_of = {}

        def quantized(x):
            """What a model of integers takes: made once for an input, not in each call."""
            if source["dtype"] == np.float32:
                return x
            if id(x) not in bytes_of:
                scale, zero = source["quantization"]
                limits = np.iinfo(source["dtype"])
                bytes_of.clear()
                levels = np.clip(np.round(x / scale) + zero, limits.min, limits.max)
                bytes_of[id(x)] = levels.astype(source["dtype"])
            return bytes_of[id(x)]

        def run(x):
            interpreter.set_tensor(source["index"], quantized(x))
            interpreter.invoke()
            y = interpreter.get_tensor(result["index"])
            if result["dtype"] == np.float32:
                return y
            scale, zero = result["quantization"]
            return (y.astype(np.float32) - zero) * np.float32(scale)

        return run

    return load


ENGINES = {
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "openvino-bf16": lambda: openvino("bf16"),
    "litert": litert,
}


def resident(key):
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[key].split()[0]) * 1024


class Session:
    def __init__(self, load):
        self.load, self.run, self.tensor = load, None, None

    def input(self, path, sizes):
        self.tensor = np.fromfile(path, np.float32).reshape([int(size) for size in sizes.split("x")])
        return "ok"

    def open(self, path, threads, tensor, sizes):
        self.input(tensor, sizes)
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
        start = time.perf_counter_ns()
        self.run = self.load(path, int(threads))
        loaded = time.perf_counter_ns()
        self.run(self.tensor)
        executed = time.perf_counter_ns()
        return f"{loaded - start} {executed - loaded} {resident('VmHWM') - before}"

    def time(self, calls, at_least):
        samples, spent = [], 0
        while len(samples) < int(calls) or spent < float(at_least):
            start = time.perf_counter_ns()
            self.run(self.tensor)
            samples.append(time.perf_counter_ns() - start)
            spent += samples[-1]
        return str(statistics.median(samples))

    def outputs(self, path):
        np.ascontiguousarray(self.run(self.tensor), np.float32).tofile(path)
        return "ok"


def main():
    # Answers go where standard output was; what the libraries print there does not.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    session = Session(ENGINES[sys.argv[1]]())
    for line in sys.stdin:
        command, *arguments = line.split()
        try:
            answer = getattr(session, command)(*arguments)
        except Exception as error:
            answer = f"error {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        print(answer, file=answers)


if __name__ == "__main__":
    main()
