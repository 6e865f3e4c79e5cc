"""Other engines' sides of the benchmarks: a process that loads a program into one of them and times it.

    python benches/peers/worker.py ENGINE      onnxruntime, openvino, openvino-bf16, litert, ggml or llama.cpp

Commands are lines, as `benches/executorch/worker.cpp` describes them, and each is answered by a line:

    open PROGRAM THREADS INPUT SIZES   INPUT holds one float32 tensor of these SIZES, as in 1x3x224x224
    input INPUT SIZES                  another tensor for the program that was opened, or, where SIZES is COUNT@POSITION,
                                       POSITION + COUNT tokens for a language model, to which the last COUNT are given: "ok"
    time CALLS NANOSECONDS
    outputs FILE

All engines have their defaults but for the number of threads; OpenVINO is asked for latency and told the type to compute in,
because its default may round to bfloat16, and leaves threads on the cores that the process has. ggml is llama.cpp's: a program
is the folder of a `linear_KxN` of `tools/models/peers.py`, whose weights become Q4_0 in the layout that llama.cpp chooses for
the processor. llama.cpp is the whole of it, with a cache of 2176 positions.
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


def ggml():
    import ctypes
    import importlib.util

    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "models"))
    import peers

    # Their package is not imported: it asks for more packages than its libraries need.
    folder = Path(importlib.util.find_spec("llama_cpp").origin).parent / "lib"
    base = ctypes.CDLL(str(folder / "libggml-base.so"), ctypes.RTLD_GLOBAL)
    cpu = ctypes.CDLL(str(folder / "libggml-cpu.so"), ctypes.RTLD_GLOBAL)
    pointer, size, f32, q4_0 = ctypes.c_void_p, ctypes.c_size_t, 0, 2

    class Parameters(ctypes.Structure):
        _fields_ = [("mem_size", size), ("mem_buffer", pointer), ("no_alloc", ctypes.c_bool)]

    def function(library, name, result, *arguments):
        found = getattr(library, name)
        found.restype, found.argtypes = result, arguments
        return found

    init = function(base, "ggml_init", pointer, Parameters)
    new_tensor = function(base, "ggml_new_tensor_2d", pointer, pointer, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    mul_mat = function(base, "ggml_mul_mat", pointer, pointer, pointer, pointer)
    add = function(base, "ggml_add", pointer, pointer, pointer, pointer)
    new_graph = function(base, "ggml_new_graph", pointer, pointer)
    expand = function(base, "ggml_build_forward_expand", None, pointer, pointer)
    allocate = function(base, "ggml_backend_alloc_ctx_tensors_from_buft", pointer, pointer, pointer)
    allocate_on = function(base, "ggml_backend_alloc_ctx_tensors", pointer, pointer, pointer)
    tensor_set = function(base, "ggml_backend_tensor_set", None, pointer, pointer, size, size)
    tensor_get = function(base, "ggml_backend_tensor_get", None, pointer, pointer, size, size)
    quantize = function(
        base, "ggml_quantize_chunk", size, ctypes.c_int, pointer, pointer, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
        pointer,
    )  # fmt: skip
    compute = function(base, "ggml_backend_graph_compute", ctypes.c_int, pointer, pointer)
    backend_of = function(cpu, "ggml_backend_cpu_init", pointer)
    set_threads = function(cpu, "ggml_backend_cpu_set_n_threads", None, pointer, ctypes.c_int)
    ignore = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, pointer)(lambda *_: None)
    function(base, "ggml_log_set", None, type(ignore), pointer)(ignore, None)
    # What llama.cpp asks first where weights of this type are to be: their order suits the processor's instructions.
    repacked = function(cpu, "_Z35ggml_backend_cpu_repack_buffer_typev", pointer)

    def load(path, threads):
        k, n = map(int, Path(path).parent.name.removeprefix("linear_").split("x"))
        count = peers.copies(k, n)
        backend = backend_of()
        set_threads(backend, threads)
        weights = init(Parameters(count * 1024 + 4096, None, True))
        layers = [new_tensor(weights, q4_0, k, n) for _ in range(count)]
        if not allocate(weights, repacked()):
            raise MemoryError("no memory for the weights")
        for index, layer in enumerate(layers):
            floats = np.ascontiguousarray(peers.linear_weights(k, n, index))
            blocks = np.empty(n * k // 32 * 18, np.uint8)
            quantize(q4_0, floats.ctypes.data, blocks.ctypes.data, 0, n, k, None)
            tensor_set(layer, blocks.ctypes.data, 0, blocks.nbytes)
        graphs = {}

        def graph_of(rows):
            context = init(Parameters(4 << 20, None, True))
            x = new_tensor(context, f32, k, rows)
            total = mul_mat(context, layers[0], x)
            for layer in layers[1:]:
                total = add(context, total, mul_mat(context, layer, x))
            graph = new_graph(context)
            expand(graph, total)
            if not allocate_on(context, backend):
                raise MemoryError("no memory for the results")
            return x, total, graph, np.empty((rows, n), np.float32)

        def run(x):
            rows = x.shape[0]
            if rows not in graphs:
                graphs[rows] = graph_of(rows)
            source, total, graph, result = graphs[rows]
            tensor_set(source, x.ctypes.data, 0, x.nbytes)
            if compute(backend, graph) != 0:
                raise RuntimeError("it does not compute")
            tensor_get(total, result.ctypes.data, 0, result.nbytes)
            return result

        return run

    load.ignore = ignore  # which must live as long as the library calls it
    return load


def llama_cpp():
    import importlib.util
    import types

    # Their package asks for more packages than this file of it needs.
    package = types.ModuleType("llama_cpp")
    package.__path__ = importlib.util.find_spec("llama_cpp").submodule_search_locations
    sys.modules["llama_cpp"] = package
    from llama_cpp import llama_cpp as library

    ignore = library.llama_log_callback(lambda *_: None)
    library.llama_log_set(ignore, None)
    library.llama_backend_init()

    def load(path, threads):
        model = library.llama_model_load_from_file(path.encode(), library.llama_model_default_params())
        parameters = library.llama_context_default_params()
        parameters.n_ctx = 2176
        parameters.n_threads = parameters.n_threads_batch = threads
        context = library.llama_init_from_model(model, parameters)
        if not context:
            raise MemoryError("no context")
        memory = library.llama_get_memory(context)
        vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
        read = np.empty(0, np.int64)  # the tokens in the cache

        def decode(tokens):
            buffer = (library.llama_token * len(tokens))(*tokens.tolist())
            if library.llama_decode(context, library.llama_batch_get_one(buffer, len(tokens))) != 0:
                raise RuntimeError("it does not compute")

        def run(text):
            nonlocal read
            tokens, position = text
            if not np.array_equal(read[:position], tokens[:position]):
                library.llama_memory_clear(memory, True)
                for begin in range(0, position, 512):
                    decode(tokens[begin : min(begin + 512, position)])
            elif not library.llama_memory_seq_rm(memory, 0, position, -1):
                raise RuntimeError("it does not go back")
            decode(tokens[position:])
            read = tokens
            return np.ctypeslib.as_array(library.llama_get_logits_ith(context, -1), shape=(vocabulary,))

        return run

    load.ignore = ignore  # which must live as long as the library calls it
    return load


ENGINES = {
    "llama.cpp": llama_cpp,
    "ggml": ggml,
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
        if "@" in sizes:
            self.tensor = np.fromfile(path, np.int64), int(sizes.split("@")[1])
            return "ok"
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
