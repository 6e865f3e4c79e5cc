"""Quantizers for PyTorch 2 Export (PT2E), which select the parts of a model that become int8. Needs torch and torchao.

    from rushlight.quantizers import CpuQuantizer
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(torch.export.export(model, args).module(check_guards=False), CpuQuantizer())
    for batch in batches:
        prepared(*batch)
    quantized = torch.export.export(convert_pt2e(prepared), args)

`rushlight.export(model, args, quantize="int8", calibration=batches)` does all of it.
"""

import difflib
import operator
import warnings
from dataclasses import dataclass

import torch
from torchao.quantization import pt2e
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)

__all__ = ["CpuQuantizer", "Int8"]

_ANNOTATION = "quantization_annotation"
_EPS = torch.finfo(torch.float32).eps
_OPS = torch.ops.aten

# GEMMs and convolutions.
_TRANSPOSED = {_OPS.conv_transpose1d.default, _OPS.conv_transpose2d.input}
_CONVOLUTIONS = {_OPS.conv1d.default, _OPS.conv2d.default, _OPS.conv3d.default} | _TRANSPOSED
_LINEAR = {_OPS.linear.default}
_BATCH_NORMS = {_OPS.batch_norm.default, _OPS._native_batch_norm_legit.default}
# Activations that are computed in the epilogue of a GEMM or convolution, with the same result on every machine.
_EPILOGUES = {
    _OPS.relu.default, _OPS.relu_.default, _OPS.hardtanh.default, _OPS.hardtanh_.default, _OPS.relu6.default,
    _OPS.relu6_.default, _OPS.clamp.default, _OPS.leaky_relu.default, _OPS.leaky_relu_.default, _OPS.hardswish.default,
    _OPS.hardswish_.default, _OPS.hardsigmoid.default, _OPS.hardsigmoid_.default,
}  # fmt: skip
# Unary operators that are computed by tables.
_TABLES = _EPILOGUES | {
    _OPS.sigmoid.default, _OPS.sigmoid_.default, _OPS.silu.default, _OPS.silu_.default, _OPS.tanh.default,
    _OPS.gelu.default, _OPS.elu.default, _OPS.elu_.default, _OPS.softmax.int,
}  # fmt: skip
_BINARY = {_OPS.add.Tensor, _OPS.add_.Tensor, _OPS.mul.Tensor, _OPS.mul_.Tensor}
_BOUNDS = {
    _OPS.relu.default, _OPS.relu_.default, _OPS.hardtanh.default, _OPS.hardtanh_.default, _OPS.relu6.default,
    _OPS.relu6_.default, _OPS.clamp.default,
}  # fmt: skip
_CONCATENATIONS = {_OPS.cat.default, _OPS.stack.default}
# Operators whose output has the scale of the input: they move, select or average elements.
_SAME_SCALE = {
    _OPS.max_pool2d.default, _OPS.adaptive_avg_pool2d.default, _OPS.adaptive_avg_pool3d.default, _OPS.avg_pool2d.default,
    _OPS.mean.dim, _OPS.view.default, _OPS.reshape.default, _OPS.flatten.using_ints, _OPS.permute.default,
    _OPS.transpose.int, _OPS.squeeze.default, _OPS.squeeze.dim, _OPS.squeeze.dims, _OPS.unsqueeze.default,
    _OPS.slice.Tensor, _OPS.select.int, _OPS.contiguous.default, _OPS.clone.default, _OPS.pad.default,
    _OPS.dropout.default, _OPS.upsample_nearest2d.vec, _OPS.upsample_bilinear2d.vec,
}  # fmt: skip


@dataclass(frozen=True)
class Int8:
    """The quantization of a part of a model.

    `dynamic`: True if the scales of activations are chosen when the program runs, for GEMMs and convolutions alone. Otherwise
    observers choose them from the inputs of a calibration. `per_channel`: each output channel of a weight has its own scale.
    `qat`: for `prepare_qat_pt2e`, which trains with fake quantization. `observer`: the choice of the scales of static
    activations, "histogram" (minimum squared error) or "minmax".
    """

    dynamic: bool = False
    per_channel: bool = True
    qat: bool = False
    observer: str = "histogram"

    def __post_init__(self):
        if self.observer not in ("histogram", "minmax"):
            raise ValueError(f"no observer is called {self.observer!r}: histogram or minmax")

    def activations(self):
        """The specification of activations: int8, affine, one scale for a tensor."""
        # Observers keep PyTorch's minimum scale, the epsilon of f32. It suffices, because the backend requantizes in f32.
        if self.dynamic and self.qat:
            average = pt2e.MovingAverageMinMaxObserver.with_args(averaging_constant=1)
            constructor = pt2e.FakeQuantize.with_args(observer=average)
        elif self.dynamic:
            constructor = pt2e.PlaceholderObserver.with_args(eps=_EPS)
        elif self.qat:
            constructor = pt2e.FusedMovingAvgObsFakeQuantize
        elif self.observer == "histogram":
            constructor = pt2e.HistogramObserver
        else:
            constructor = pt2e.MinMaxObserver
        return QuantizationSpec(
            dtype=torch.int8, quant_min=-128, quant_max=127, qscheme=torch.per_tensor_affine, is_dynamic=self.dynamic,
            observer_or_fake_quant_ctr=constructor,
        )  # fmt: skip

    def weights(self, axis=0):
        """The specification of weights: int8 from -127 to 127, symmetric, per output channel, which is `axis`, or per tensor."""
        if self.qat and self.per_channel:
            constructor = pt2e.FusedMovingAvgObsFakeQuantize.with_args(observer=pt2e.MovingAveragePerChannelMinMaxObserver)
        elif self.qat:
            constructor = pt2e.FusedMovingAvgObsFakeQuantize.with_args(observer=pt2e.MovingAverageMinMaxObserver)
        elif self.per_channel:
            constructor = pt2e.PerChannelMinMaxObserver
        else:
            constructor = pt2e.MinMaxObserver
        scheme = torch.per_channel_symmetric if self.per_channel else torch.per_tensor_symmetric
        return QuantizationSpec(
            dtype=torch.int8, quant_min=-127, quant_max=127, qscheme=scheme, ch_axis=axis if self.per_channel else None,
            observer_or_fake_quant_ctr=constructor,
        )  # fmt: skip


class CpuQuantizer(Quantizer):
    """Annotates the nodes that Rushlight's CPU backend computes in int8: convolutions and linear layers with the activation after
    them, additions and multiplications, unary operators, and operators that move, select or average elements.

    `config` is for the whole model (None for none of it). The most specific rule counts: a module's name before its type, the
    type before an operator, and all before `config`. Quantizers compose: annotations of another quantizer stay.
    """

    def __init__(self, config=Int8()):
        super().__init__()
        self._config = config
        self._names, self._types, self._operators = {}, {}, {}

    def set_global(self, config):
        """Sets the configuration of nodes without a rule. Returns the quantizer, as all setters do."""
        self._config = config
        return self

    def set_module_name(self, name, config):
        """Sets the configuration of the module with a name, as in `named_modules()`, and of its submodules; None for floats.

        Annotating a model without such a module raises ValueError.
        """
        self._names[name] = config
        return self

    def set_module_type(self, kind, config):
        """Sets the configuration of the modules of a class; None for floats. Warns if a model has none."""
        self._types[kind] = config
        return self

    def set_operator_type(self, op, config):
        """Sets the configuration of an operator, such as `torch.ops.aten.linear.default`; None for floats. Warns if a model does not
        call it.
        """
        self._operators[op] = config
        return self

    def annotate(self, model):
        self._check_rules(model)
        for node in model.graph.nodes:
            config = self._config_of(node) if node.op == "call_function" else None
            if config is None or _is_annotated(node):
                continue
            if node.target in _LINEAR | _CONVOLUTIONS:
                _annotate_gemm(node, config)
        for node in model.graph.nodes:
            config = self._config_of(node) if node.op == "call_function" else None
            if config is None or config.dynamic or _is_annotated(node):
                continue
            if node.target in _BINARY:
                _annotate_binary(node, config)
            elif node.target in _CONCATENATIONS:
                _annotate_concatenation(node, config)
            elif node.target in _TABLES and _is_quantized(node.args[0]):
                _annotate(node, {node.args[0]: config.activations()}, config.activations())
            elif node.target in _SAME_SCALE and _is_quantized(node.args[0]):
                _annotate_same(node)
        return model

    def validate(self, model):
        """Does nothing: all annotations of this quantizer are valid."""

    def _check_rules(self, model):
        """Raises for names, and warns of types and operators, that the model does not have."""
        names, kinds, operators = {name for name, _ in model.named_modules()}, set(), set()
        for node in model.graph.nodes:
            operators.add(node.target)
            for path, kind in (node.meta.get("nn_module_stack") or {}).values():
                names.add(_module_name(path))
                kinds.add(kind)
        for name in self._names:
            if name not in names:
                near = ", ".join(difflib.get_close_matches(name, sorted(filter(None, names)), 5, 0.4))
                raise ValueError(f"no module of the model is called {name!r}" + (f"; near it: {near}" if near else ""))
        for wanted in self._types:
            if not any(_is_kind(kind, wanted) for kind in kinds):
                warnings.warn(f"set_module_type: the model has no {wanted.__qualname__}", stacklevel=2)
        for op in self._operators:
            if op not in operators:
                warnings.warn(f"set_operator_type: the model does not call {op}", stacklevel=2)

    def _config_of(self, node):
        """Returns the configuration of the most specific rule."""
        modules = list((node.meta.get("nn_module_stack") or {}).values())
        for path, _ in reversed(modules):
            name = _module_name(path)
            if name in self._names:
                return self._names[name]
        for _, kind in reversed(modules):
            for wanted, config in self._types.items():
                if _is_kind(kind, wanted):
                    return config
        return self._operators.get(node.target, self._config)


def _is_kind(kind, wanted):
    """Returns True if a module's class, or its name in an export, is a class."""
    return kind is wanted or kind == f"{wanted.__module__}.{wanted.__qualname__}"


def _module_name(path):
    """Returns a module's name without the prefix of the export."""
    name = path.replace("L['self']", "").replace("_modules['", "").replace("']", "")
    return name.removeprefix(".")


def _is_annotated(node):
    annotation = node.meta.get(_ANNOTATION)
    return annotation is not None and annotation._annotated


def _is_quantized(node):
    """Returns True if the result of a node will be int8."""
    annotation = node.meta.get(_ANNOTATION) if isinstance(node, torch.fx.Node) else None
    return annotation is not None and annotation.output_qspec is not None


def _annotate(node, inputs, output=None):
    node.meta[_ANNOTATION] = QuantizationAnnotation(input_qspec_map=inputs, output_qspec=output, _annotated=True)


def _only_user(node):
    users = list(node.users)
    return users[0] if len(users) == 1 else None


def _is_float(node):
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _annotate_gemm(node, config):
    """Annotates a GEMM or convolution with the batch norm and the activation after it. Only the last result is rounded."""
    data, weight = node.args[0], node.args[1]
    if not (_is_float(data) and isinstance(weight, torch.fx.Node) and weight.op in ("get_attr", "placeholder")):
        return
    axis = 1 if node.target in _TRANSPOSED else 0
    inputs = {data: config.activations(), weight: config.weights(axis)}
    if config.dynamic:
        return _annotate(node, inputs)
    path, last = [node], node
    while (user := _only_user(last)) is not None and not _is_annotated(user):
        is_norm = user.target in _BATCH_NORMS and len(path) == 1 and user.args[0] is last
        is_part = user.target is operator.getitem and last.target in _BATCH_NORMS
        is_epilogue = user.target in _EPILOGUES and user.args[0] is last
        if not (is_norm or is_part or is_epilogue):
            break
        path.append(user)
        last = user
        if is_epilogue:
            break
    for part in path:
        _annotate(part, {})
    node.meta[_ANNOTATION].input_qspec_map = inputs
    last.meta[_ANNOTATION].output_qspec = config.activations()


def _annotate_binary(node, config):
    operands = [argument for argument in node.args[:2] if isinstance(argument, torch.fx.Node)]
    # Nodes whose operands are all floats stay floats.
    if len(operands) != 2 or not all(map(_is_float, operands)) or not any(map(_is_quantized, operands)):
        return
    bounds = _only_user(node)
    inputs = {operand: config.activations() for operand in operands}
    if bounds is not None and bounds.target in _BOUNDS and not _is_annotated(bounds):
        _annotate(node, inputs)
        return _annotate(bounds, {}, config.activations())
    _annotate(node, inputs, config.activations())


def _annotate_concatenation(node, config):
    """Annotates a concatenation. All parts have one scale, so that it only moves elements."""
    parts = list(dict.fromkeys(node.args[0]))
    if not all(map(_is_float, parts)) or not any(map(_is_quantized, parts)):
        return
    shared = SharedQuantizationSpec((parts[0], node))
    inputs = {part: config.activations() if part is parts[0] else shared for part in parts}
    _annotate(node, inputs, shared)


def _annotate_same(node):
    shared = SharedQuantizationSpec((node.args[0], node))
    _annotate(node, {node.args[0]: node.args[0].meta[_ANNOTATION].output_qspec}, shared)
