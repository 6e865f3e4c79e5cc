"""The models of the CPU benchmark, in the form of each engine that it compares.

    python tools/models/peers.py OUT                              what the main environment makes and is missing
    python tools/models/peers.py OUT --forms onnx openvino tflite what the environment of the peers makes
    python tools/models/peers.py OUT --only resnet18
    python tools/models/peers.py OUT --linear                     linear layers of language models
    python tools/models/peers.py --xnnpack FOLDER...              xnnpack.pte of the forward.pt2 of other folders

`OUT/<name>/` gets `model.pt2`, straight from torch.export.export, with random weights from a fixed seed; every other
form is made from that file, so that all have the same weights:

    portable.pte      the executorch wheel's compiler without a partitioner
    xnnpack.pte       the same, lowered for its XNNPACK delegate
    model.onnx        torch.onnx
    openvino.xml      openvino.convert_model, in float32
    model.tflite      litert-torch
    model_int8.pt2    PT2E with ExecuTorch's XNNPACKQuantizer: weights by channel, activations static
    xnnpack_int8.pte  that one, lowered for ExecuTorch's XNNPACK delegate
    model_int8.onnx   onnxruntime.quantization.quantize_static: QDQ, weights by channel
    openvino_int8.xml nncf.quantize, which knows of the transformers that they are some
    model_int8.tflite ai-edge-quantizer, its recipe static_wi8_ai8
    input_SIZES.bin   the values of the only input, float32; SIZES is as in 1x3x224x224
    output_SIZES.bin  what eager PyTorch answers

Those in int8 are all calibrated with the same few inputs.

`linear_KxN` are linear layers of the shapes of language models, with weights of four bits in groups of 32 and rows that are
rounded to eight bits (torchao), in the forms pt2 and xnnpack alone. They are made by `--linear`.

`minilm` embeds a sentence of 128 tokens, given as int64, and `smallest` doubles a number. They are for pages, and are made when
`--only` names them, in the forms pt2 and onnx alone.

Seven models have fixed sizes. `resnet50_batch` and `encoder` are for scaling: one file for several batches, or lengths of a
sequence, in the forms pt2 and onnx alone. A form that cannot be made leaves `<file>.failed` with the reason, and the
benchmark shows it as missing. Each model is made in a process of its own.
"""

import argparse
import multiprocessing
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import xnnpack  # noqa: E402
from attempt import attempt  # noqa: E402

CLASSIFIERS = (
    "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "resnet18", "resnet50", "swin_t", "vit_b_16",
)  # fmt: skip
FILES = {
    "pt2": "model.pt2",
    "portable": "portable.pte",
    "xnnpack": "xnnpack.pte",
    "onnx": "model.onnx",
    "openvino": "openvino.xml",
    "tflite": "model.tflite",
    "pt2_int8": "model_int8.pt2",
    "xnnpack_int8": "xnnpack_int8.pte",
    "onnx_int8": "model_int8.onnx",
    "openvino_int8": "openvino_int8.xml",
    "tflite_int8": "model_int8.tflite",
}
# Which the main environment makes.
OURS = ("pt2", "portable", "xnnpack", "pt2_int8", "xnnpack_int8")
# Inputs that observers see.
CALIBRATION = 4
BATCHES = (1, 4, 16)
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)
WIDTH = 384


def encoder():
    """Four layers of a transformer's encoder over vectors, normalised first, in the proportions of MiniLM."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Layer(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.before_attention, self.before_forward = nn.LayerNorm(width), nn.LayerNorm(width)
            self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, length, width = x.shape
            parts = self.mix(self.before_attention(x)).chunk(3, dim=-1)
            heads = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
            attended = functional.scaled_dot_product_attention(*heads)
            x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(self.before_forward(x))))

    return nn.Sequential(*(Layer(WIDTH, 6) for _ in range(4))), [torch.randn(1, n, WIDTH) for n in LENGTHS]


def resnet50_batch():
    import torch

    return xnnpack.torchvision("resnet50"), [torch.randn(n, 3, 224, 224) for n in BATCHES]


def linear(name):
    """Linear layers of one shape, `linear_KxN`, which take the same rows and whose results are added.

    There are so many that their weights are more than caches hold, and each has the weights of a generator of its own.
    """
    import torch
    from torch import nn

    k, n = map(int, name.removeprefix("linear_").split("x"))

    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(k, n, bias=False) for _ in range(copies(k, n)))
            for index, layer in enumerate(self.layers):
                layer.weight.data = torch.from_numpy(linear_weights(k, n, index))

        def forward(self, x):
            return sum(layer(x) for layer in self.layers)

    return Layers(), [torch.randn(rows, k) for rows in ROWS]


def copies(k, n):
    return max(1, -(-WEIGHTS // (k * n)))


def linear_weights(k, n, index):
    import numpy

    return numpy.random.default_rng(index).standard_normal((n, k), numpy.float32) / numpy.float32(k**0.5)


LINEAR = tuple(
    f"linear_{k}x{n}"
    for k, n in (
        # Llama 3.2 1B: queries and outputs, keys and values, gate and up, down.
        (2048, 2048), (2048, 512), (2048, 8192), (8192, 2048),
        # Qwen3 0.6B: queries, keys and values, outputs, gate and up, down.
        (1024, 2048), (1024, 1024), (2048, 1024), (1024, 3072), (3072, 1024),
    )
)  # fmt: skip
# Of all layers of a shape, and the rows that they take.
WEIGHTS = 128 << 20
ROWS = (1, 128)

def minilm():
    """all-MiniLM-L6-v2 with random weights: a BERT of six layers, and the mean of its vectors, of length one."""
    import torch
    from torch import nn
    from torch.nn import functional
    from transformers import BertConfig, BertModel

    class Sentence(nn.Module):
        def __init__(self):
            super().__init__()
            shape = {"hidden_size": WIDTH, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
            self.bert = BertModel(BertConfig(return_dict=False, attn_implementation="sdpa", **shape), add_pooling_layer=False)

        def forward(self, tokens):
            return functional.normalize(self.bert(tokens)[0].mean(1), dim=1)

    return Sentence(), [torch.randint(0, 30522, (1, SENTENCE))]


def smallest():
    import torch
    from torch import nn

    class Double(nn.Module):
        def forward(self, x):
            return x + x

    return Double(), [torch.ones(1)]


PAGES = {"minilm": minilm, "smallest": smallest}
SENTENCE = 128

SCALING = {"resnet50_batch": (resnet50_batch, 0, BATCHES), "encoder": (encoder, 1, LENGTHS)}


def classifier(name):
    build, example = xnnpack.MODELS[name]
    return build(), list(example())


def make_pt2(name, folder):
    """Exports the model, and writes its inputs and what eager PyTorch answers."""
    import torch

    torch.manual_seed(xnnpack.SEED)
    shapes = None
    if name in PAGES:
        module, inputs = PAGES[name]()
    elif name in LINEAR:
        module, inputs = linear(name)
        module = xnnpack.with_dynamic_activations(module, "8da4w_groups")
        shapes = ({0: torch.export.Dim("rows", min=1, max=ROWS[-1])},)
    elif name in SCALING:
        build, dim, sizes = SCALING[name]
        module, inputs = build()
        shapes = ({dim: torch.export.Dim("size", min=2 if dim else 1, max=sizes[-1])},)
    else:
        module, inputs = classifier(name)
    module = module.eval().requires_grad_(False)
    if name not in LINEAR and name not in PAGES:
        xnnpack.settle(module, inputs[-1:])
    for tensor in inputs:
        sizes = "x".join(map(str, tensor.shape))
        tensor.numpy().tofile(folder / f"input_{sizes}.bin")
        answer = module(tensor)
        if not answer.any():
            raise RuntimeError("all results are zero")
        answer.numpy().tofile(folder / f"output_{sizes}.bin")
    # A size of one in the example would be taken for constant.
    program = torch.export.export(module, (inputs[-1],), dynamic_shapes=shapes)
    torch.export.save(program, folder / FILES["pt2"])


def exported(folder):
    import torch

    if folder.name in LINEAR:
        import torchao.quantization  # noqa: F401  whose operators the program has

    return torch.export.load(folder / FILES["pt2"])


def lower(program, path, partitioner=None):
    """Writes what the executorch wheel makes of a program."""
    from executorch.exir import to_edge_transform_and_lower

    lowered = to_edge_transform_and_lower(program, partitioner=partitioner).to_executorch()
    path.write_bytes(lowered.buffer)


def make_portable(name, folder):
    lower(exported(folder), folder / FILES["portable"])


def delegate(program, folder):
    """Writes a program that is lowered for XNNPACK."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
        XnnpackDynamicallyQuantizedPartitioner,
        XnnpackPartitioner,
    )

    dynamic = [XnnpackDynamicallyQuantizedPartitioner()] if folder.name in LINEAR else []
    lower(program, folder / FILES["xnnpack"], [*dynamic, XnnpackPartitioner()])


def make_xnnpack(name, folder):
    delegate(exported(folder), folder)


def calibration():
    """The inputs that quantizers see, the same for all."""
    import torch

    noise = torch.Generator().manual_seed(xnnpack.SEED)
    return [torch.randn(1, 3, 224, 224, generator=noise) for _ in range(CALIBRATION)]


def make_pt2_int8(name, folder):
    import torch
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    config = xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True)
    quantizer = xnnpack_quantizer.XNNPACKQuantizer().set_global(config)
    prepared = prepare_pt2e(exported(folder).module(check_guards=False), quantizer)
    inputs = calibration()
    for tensor in inputs:
        prepared(tensor)
    torch.export.save(torch.export.export(convert_pt2e(prepared), (inputs[0],)), folder / FILES["pt2_int8"])


def make_xnnpack_int8(name, folder):
    import torch
    import torchao.quantization.pt2e.quantize_pt2e  # noqa: F401  whose operators the program has
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    program = torch.export.load(folder / FILES["pt2_int8"])
    lower(program, folder / FILES["xnnpack_int8"], [XnnpackPartitioner()])


def make_onnx_int8(name, folder):
    from onnxruntime import InferenceSession
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source, prepared = folder / FILES["onnx"], folder / "prepared.onnx"
    key = InferenceSession(source).get_inputs()[0].name

    class Reader(CalibrationDataReader):
        rest = iter([{key: tensor.numpy()} for tensor in calibration()])

        def get_next(self):
            return next(self.rest, None)

    try:
        quant_pre_process(source, prepared)
    except Exception:  # of the symbolic inference of shapes, which does not know all operators
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(prepared, folder / FILES["onnx_int8"], Reader(), QuantFormat.QDQ, per_channel=True, **types)
    prepared.unlink()


def make_openvino_int8(name, folder):
    import nncf
    import openvino

    model = openvino.Core().read_model(folder / FILES["openvino"])
    kind = nncf.ModelType.TRANSFORMER if name in ("vit_b_16", "swin_t") else None
    inputs = nncf.Dataset([tensor.numpy() for tensor in calibration()])
    quantized = nncf.quantize(model, inputs, model_type=kind, subset_size=CALIBRATION)
    openvino.save_model(quantized, folder / FILES["openvino_int8"], compress_to_fp16=False)


def make_tflite_int8(name, folder):
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import quantizer, recipe

    source = str(folder / FILES["tflite"])
    key = next(iter(Interpreter(source).get_signature_runner().get_input_details()))
    quantize = quantizer.Quantizer(source, recipe.static_wi8_ai8())
    data = {"serving_default": [{key: tensor.numpy()} for tensor in calibration()]}
    quantize.quantize(quantize.calibrate(data)).export_model(str(folder / FILES["tflite_int8"]), overwrite=True)


def make_onnx(name, folder):
    import torch

    torch.onnx.export(exported(folder), (), folder / FILES["onnx"], dynamo=True, external_data=False)


def make_openvino(name, folder):
    import openvino

    model = openvino.convert_model(folder / FILES["onnx"])
    openvino.save_model(model, folder / FILES["openvino"], compress_to_fp16=False)


def make_tflite(name, folder):
    import litert_torch

    program = exported(folder)
    litert_torch.convert(program.module(), program.example_inputs[0]).export(str(folder / FILES["tflite"]))


def make(name, forms, out):
    """Makes the forms of a model; runs in a process of its own."""
    for form in forms:
        attempt(name, form, out / name / FILES[form], globals()[f"make_{form}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=xnnpack.ROOT / "target" / "peer-models")
    names = (*CLASSIFIERS, *SCALING)
    parser.add_argument("--only", nargs="+", choices=(*names, *PAGES), default=names, help="models")
    parser.add_argument("--linear", action="store_true", help="linear layers instead of models")
    parser.add_argument("--forms", nargs="+", choices=FILES, default=OURS)
    parser.add_argument("--force", action="store_true", help="make again what is there")
    parser.add_argument("--xnnpack", type=Path, nargs="+", default=(), metavar="FOLDER", help="only lower what is there")
    args = parser.parse_args()
    if args.xnnpack:
        import torch

        for folder in args.xnnpack:
            if not (folder / FILES["xnnpack"]).exists():
                delegate(torch.export.load(folder / "forward.pt2"), folder)
        return
    if args.linear:
        args.only, args.forms = LINEAR, ("pt2", "xnnpack")
    for name in args.only:
        folder = args.out / name
        forms = [form for form in args.forms if not (name in SCALING or name in PAGES) or form in ("pt2", "onnx")]
        stale = [form for form in forms if args.force or not (folder / FILES[form]).exists()]
        if stale:
            process = multiprocessing.get_context("spawn").Process(target=make, args=(name, stale, args.out))
            process.start()
            process.join()
    wanted = [args.out / name / FILES[form] for name in args.only for form in args.forms]
    if failed := [path for path in wanted if path.with_name(path.name + ".failed").exists()]:
        print("failed:", *failed, sep="\n  ")


if __name__ == "__main__":
    main()
