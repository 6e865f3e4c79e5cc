"""Quantizers for PyTorch 2 Export (PT2E), which say what of a model becomes integers. Needs torch and torchao.

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

# Products, with the positions of what they multiply.
_TRANSPOSED = {_OPS.conv_transpose1d.default, _OPS.conv_transpose2d.input}
_CONVOLUTIONS = {_OPS.conv1d.default, _OPS.conv2d.default} | _TRANSPOSED
_LINEAR = {_OPS.linear.default}
_BATCH_NORMS = {_OPS.batch_norm.default, _OPS._native_batch_norm_legit.default}
# Functions that are computed in the registers of the product before them, the same on every machine.
_IN_TAILS = {
    _OPS.relu.default, _OPS.relu_.default, _OPS.hardtanh.default, _OPS.hardtanh_.default, _OPS.relu6.default,
    _OPS.relu6_.default, _OPS.clamp.default, _OPS.leaky_relu.default, _OPS.leaky_relu_.default, _OPS.hardswish.default,
    _OPS.hardswish_.default, _OPS.hardsigmoid.default, _OPS.hardsigmoid_.default,
}  # fmt: skip
# Functions of one tensor that become tables, or read them.
_TABLES = _IN_TAILS | {
    _OPS.sigmoid.default, _OPS.sigmoid_.default, _OPS.silu.default, _OPS.silu_.default, _OPS.tanh.default,
    _OPS.gelu.default, _OPS.elu.default, _OPS.elu_.default, _OPS.softmax.int,
}  # fmt: skip
_SUMS = {_OPS.add.Tensor, _OPS.add_.Tensor, _OPS.mul.Tensor, _OPS.mul_.Tensor}
_BOUNDS = {
    _OPS.relu.default, _OPS.relu_.default, _OPS.hardtanh.default, _OPS.hardtanh_.default, _OPS.relu6.default,
    _OPS.relu6_.default, _OPS.clamp.default,
}  # fmt: skip
_JOINS = {_OPS.cat.default, _OPS.stack.default}
# What has the scale of its input, because it moves elements, or picks or averages some.
_SAME_SCALE = {
    _OPS.max_pool2d.default, _OPS.adaptive_avg_pool2d.default, _OPS.avg_pool2d.default, _OPS.mean.dim,
    _OPS.view.default, _OPS.reshape.default, _OPS.flatten.using_ints, _OPS.permute.default, _OPS.transpose.int,
    _OPS.squeeze.default, _OPS.squeeze.dim, _OPS.squeeze.dims, _OPS.unsqueeze.default, _OPS.slice.Tensor,
    _OPS.select.int, _OPS.contiguous.default, _OPS.clone.default, _OPS.pad.default, _OPS.dropout.default,
    _OPS.upsample_nearest2d.vec, _OPS.upsample_bilinear2d.vec,
}  # fmt: skip


@dataclass(frozen=True)
class Int8:
    """How a part of a model is quantized.

    `dynamic`: scales of activations are chosen when the program runs, for products alone; otherwise observers choose them
    from the inputs of a calibration. `per_channel`: each output channel of a weight has a scale of its own. `qat`: for
    `prepare_qat_pt2e`, which trains with fake quantization. `observer`: what chooses the scales of static activations,
    "histogram" (the least squared error) or "minmax".
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
        # Observers keep PyTorch's least scale, the epsilon of f32: the backend requantizes in f32, which needs no larger one.
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
        """The specification of weights: int8 from -127 to 127, symmetric, by output channel, which is that axis, or as a
        whole."""
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
    """Annotates what Rushlight's CPU backend computes in integers: convolutions and linear layers with the activation that
    follows, sums and products, functions of one tensor, and what moves, picks or averages elements.

    `config` is for all of the model (None for none of it). The nearest rule counts: a module's name before its type, that
    before an operator, and all before `config`. Quantizers compose: what another one has annotated stays.
    """

    def __init__(self, config=Int8()):
        super().__init__()
        self._config = config
        self._names, self._types, self._operators = {}, {}, {}

    def set_global(self, config):
        """Sets what is for all that no rule is for. Returns the quantizer, as all setters do."""
        self._config = config
        return self

    def set_module_name(self, name, config):
        """Sets what is for the module of a name, as in `named_modules()`, and for what is inside of it; None for floats.

        To annotate a model without such a module is a ValueError."""
        self._names[name] = config
        return self

    def set_module_type(self, kind, config):
        """Sets what is for the modules of a class; None for floats. A class of which a model has none is warned of."""
        self._types[kind] = config
        return self

    def set_operator_type(self, op, config):
        """Sets what is for an operator, such as `torch.ops.aten.linear.default`; None for floats. One that a model does not
        call is warned of."""
        self._operators[op] = config
        return self

    def annotate(self, model):
        self._check_rules(model)
        for node in model.graph.nodes:
            config = self._config_of(node) if node.op == "call_function" else None
            if config is None or _is_annotated(node):
                continue
            if node.target in _LINEAR | _CONVOLUTIONS:
                _annotate_product(node, config)
        for node in model.graph.nodes:
            config = self._config_of(node) if node.op == "call_function" else None
            if config is None or config.dynamic or _is_annotated(node):
                continue
            if node.target in _SUMS:
                _annotate_sum(node, config)
            elif node.target in _JOINS:
                _annotate_join(node, config)
            elif node.target in _TABLES and _is_quantized(node.args[0]):
                _annotate(node, {node.args[0]: config.activations()}, config.activations())
            elif node.target in _SAME_SCALE and _is_quantized(node.args[0]):
                _annotate_same(node)
        return model

    def validate(self, model):
        """Nothing can be wrong with what this quantizer annotates."""

    def _check_rules(self, model):
        """Refuses names, and warns of types and operators, that nothing of the model has."""
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
        """The configuration of the nearest rule."""
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
    """Whether a module's class, or its name as an export has it, is a class."""
    return kind is wanted or kind == f"{wanted.__module__}.{wanted.__qualname__}"


def _module_name(path):
    """A module's name without what the export puts in front."""
    name = path.replace("L['self']", "").replace("_modules['", "").replace("']", "")
    return name.removeprefix(".")


def _is_annotated(node):
    annotation = node.meta.get(_ANNOTATION)
    return annotation is not None and annotation._annotated


def _is_quantized(node):
    """Whether what a node gives is to be integers."""
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


def _annotate_product(node, config):
    """A product, with the batch norm and the activation after it, whose result is rounded once."""
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
        is_tail = user.target in _IN_TAILS and user.args[0] is last
        if not (is_norm or is_part or is_tail):
            break
        path.append(user)
        last = user
        if is_tail:
            break
    for part in path:
        _annotate(part, {})
    node.meta[_ANNOTATION].input_qspec_map = inputs
    last.meta[_ANNOTATION].output_qspec = config.activations()


def _annotate_sum(node, config):
    operands = [argument for argument in node.args[:2] if isinstance(argument, torch.fx.Node)]
    # At least one of them is integers already: islands of floats stay what they are.
    if len(operands) != 2 or not all(map(_is_float, operands)) or not any(map(_is_quantized, operands)):
        return
    bounds = _only_user(node)
    inputs = {operand: config.activations() for operand in operands}
    if bounds is not None and bounds.target in _BOUNDS and not _is_annotated(bounds):
        _annotate(node, inputs)
        return _annotate(bounds, {}, config.activations())
    _annotate(node, inputs, config.activations())


def _annotate_join(node, config):
    """All parts have one scale, so that nothing is computed."""
    parts = list(dict.fromkeys(node.args[0]))
    if not all(map(_is_float, parts)) or not any(map(_is_quantized, parts)):
        return
    shared = SharedQuantizationSpec((parts[0], node))
    inputs = {part: config.activations() if part is parts[0] else shared for part in parts}
    _annotate(node, inputs, shared)


def _annotate_same(node):
    shared = SharedQuantizationSpec((node.args[0], node))
    _annotate(node, {node.args[0]: node.args[0].meta[_ANNOTATION].output_qspec}, shared)
