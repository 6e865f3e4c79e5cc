"""Quantization without PyTorch's quantizers."""

import json
import numbers
import os
import sys
import warnings
from collections.abc import Mapping
from typing import NamedTuple, Optional

from ._arguments import check_bool, check_count, check_text
from ._rushlight import SCHEMES
from ._signature import of_exported
from ._text import Table, count, printable_with_repr, size

_MAX_ROWS = 20
_PACKAGE = os.path.dirname(__file__)
# Signal-to-noise ratio in dB below which an output is mostly noise.
LOW_SNR = 10.0


class Quantization(NamedTuple):
    """Settings of a quantization. It needs neither torch nor torchao.

    `scheme`: the name of a scheme, such as "int8" (8-bit weights and activations, whose scales come from a calibration), "int8-dynamic" (activations are
    quantized when the program runs, per row for linear layers), "8da4w" (linear layers likewise, with 4-bit weights in groups
    of 32), "int4" or "int8-weight" (linear layers with activations in floats).
    `observer`: the choice of the ranges of activations: "histogram" (minimum squared error), "minmax", "average", "percentile",
    "mse" (both ends move together), or "best" (the best of three for each layer).
    `weights`: the rounding of weights: "mse" (scales with the minimum squared error), "nearest", or "gptq" (rounding errors that
    compensate each other on the calibration).
    `keep`: names of modules that stay floats, in which `*` is any text. A name without a module is an error.
    `embeddings`: 8 or 4 bits for the tables of embeddings, per row or in groups of 32. By default they stay floats.
    `bias_correction`: True if the biases of convolutions correct the shift that rounding causes in the means of results.
    `min_snr`: minimum signal-to-noise ratio of the outputs in dB. The worst layers stay floats until it is reached.
    """

    scheme: str = "int8"
    observer: str = "histogram"
    weights: str = "mse"
    keep: tuple = ()
    bias_correction: bool = True
    min_snr: Optional[float] = None
    embeddings: Optional[int] = None


class QuantizationWarning(UserWarning):
    """Outputs of a quantized program are mostly noise, or a setting has no effect. The text has a hint."""


class QuantizedOutput(NamedTuple):
    """The error of an output. `snr` is its signal-to-noise ratio in dB; None if nothing differs. `non_finite` is the number of
    elements that are NaN or infinite only after the quantization.
    """

    method: str
    index: int
    name: str
    snr: Optional[float]
    non_finite: int


class QuantizedLayer(NamedTuple):
    """The result for a layer. `snr` is the signal-to-noise ratio of its results, `weight_snr` that of its weights, in dB; None if
    nothing was compared or nothing differs. `kept` is the reason why the layer stays in floats; None if it is quantized.
    """

    method: str
    name: str
    op: str
    source: Optional[str]
    sizes: list
    kept: Optional[str]
    bytes_before: int
    bytes_after: int
    weight_snr: Optional[float]
    snr: Optional[float]
    range: Optional[list]


class QuantizationProposal(NamedTuple):
    """Layers that could stay in floats, with the measured effect.

    `keep` has their names, the worst first, as `Quantization.keep` takes them. `output_snr` is the signal-to-noise ratio in dB of the
    method's outputs then, `nbytes` the bytes of weights that this adds, `multiplications` the part of the layers' multiplications
    that is in floats, from 0 to 1.
    """

    method: str
    keep: list
    output_snr: float
    nbytes: int
    multiplications: float


@printable_with_repr
class QuantizationReport(NamedTuple):
    """The report of a quantization. It prints as a table of its layers. `layers` begins with the worst.

    `output_snr` is the signal-to-noise ratio in dB of all float outputs together, and `outputs` has each of them. `compared_on`
    is "calibration" or "example" (the inputs of the export); None if nothing was compared, and `not_compared` is the reason.
    `calibrated_on` has the inputs that static scales come from, by the same names; None for other schemes. `proposals` are layers to
    keep in floats, if the outputs are below 30 dB and `min_snr` is not set. `warnings` name the outputs below 10 dB, and say if there
    was no calibration, each with a hint.
    """

    scheme: str
    observer: str
    rounding: str
    samples: int
    calibrated_on: Optional[str]
    layers: list
    output_snr: Optional[float]
    outputs: list
    compared_on: Optional[str]
    not_compared: Optional[str]
    proposals: list
    warnings: list
    bytes_before: int
    bytes_after: int
    layers_in_integers: int

    def _parts(self):
        def decibels(ratio):
            return "" if ratio is None else f"{ratio:.1f} dB"

        outputs = decibels(self.output_snr) or ("exact" if self.compared_on else "not compared")
        lines = [
            f"{self.layers_in_integers} of {len(self.layers)} layers in {self.scheme}, weights "
            f"{size(self.bytes_before)} -> {size(self.bytes_after)}, outputs {outputs}"
        ]
        if self.not_compared:
            lines.append(f"outputs not compared: {self.not_compared}")
        lines += [f"warning: {warning}" for warning in self.warnings]
        lines += [
            f"keep {count(len(proposal.keep), 'more layer')} in floats: outputs {decibels(proposal.output_snr)}, "
            f"weights +{size(proposal.nbytes)}, {100 * proposal.multiplications:.1f} % of the multiplications in floats: "
            f"{', '.join(proposal.keep)}"
            for proposal in self.proposals
        ]
        rows = [("layer", "results", "weights", "in floats")]
        rows += [
            (layer.name, decibels(layer.snr), decibels(layer.weight_snr), layer.kept or "")
            for layer in self.layers[:_MAX_ROWS]
        ]
        lines.append(Table(rows, right=(1, 2)))
        if len(self.layers) > _MAX_ROWS:
            lines.append(f"... and {len(self.layers) - _MAX_ROWS} more")
        return lines


def report(text):
    """Converts the compiler's report from JSON."""
    values = json.loads(text)
    layers = [QuantizedLayer(**layer) for layer in values.pop("layers")]
    outputs = [QuantizedOutput(**output) for output in values.pop("outputs")]
    proposals = [QuantizationProposal(nbytes=row.pop("bytes"), **row) for row in values.pop("proposals")]
    return QuantizationReport(layers=layers, outputs=outputs, proposals=proposals, **values)


def warn(text, category=QuantizationWarning):
    """Issues a warning for the line outside of this package that called it."""
    level, frame = 1, sys._getframe()
    while frame is not None and os.path.dirname(frame.f_code.co_filename) == _PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def settings(quantize):
    """Converts the argument `quantize` to a Quantization, or None."""
    if quantize is None or isinstance(quantize, Quantization):
        return quantize
    if isinstance(quantize, str):
        return Quantization(quantize)
    raise TypeError(
        f"quantize has to be the name of a scheme or a rushlight.Quantization, got {quantize!r}; write quantize=\"int8\", or choose "
        f"one of {', '.join(SCHEMES)}"
    )


def calls(calibration, methods):
    """Returns the inputs of the calls of each method. Iterables are read once."""
    if calibration is None:
        return {}
    if not isinstance(calibration, Mapping):
        if len(methods) > 1:
            raise ValueError(
                "calibration of several methods has to be a dict of method names to inputs: "
                f"calibration={{{methods[0]!r}: batches, ...}}"
            )
        calibration = {methods[0]: calibration}
    return {method: list(batches(inputs)) for method, inputs in calibration.items()}


class Batch:
    """What a DataLoader gives: inputs of several calls along their first dimension, and perhaps labels behind them."""

    __slots__ = ("_values",)

    def __init__(self, values):
        self._values = values

    def inputs(self, names):
        """The inputs of these names, or as many as there are names, without what follows."""
        if isinstance(self._values, Mapping):
            return {name: value for name, value in self._values.items() if name in names}
        if isinstance(self._values, (tuple, list)):
            return tuple(self._values[: len(names)])
        return (self._values,)

    def calls(self, signature):
        """The inputs of calls that a method accepts: as many rows at a time as its first dimensions allow."""
        inputs = self.inputs(signature.names)
        values = list(inputs.values() if isinstance(inputs, Mapping) else inputs)
        rows = {value.shape[0] if getattr(value, "shape", ()) else None for value in values}
        most, is_fixed = signature.rows
        if len(rows) != 1 or None in rows or most is None or next(iter(rows)) <= most:
            return [inputs]
        (rows,) = rows
        # A method of a fixed size does not take the rest.
        starts = range(0, rows - most + 1 if is_fixed else rows, most)
        if isinstance(inputs, Mapping):
            return [{name: value[at : at + most] for name, value in inputs.items()} for at in starts]
        return [tuple(value[at : at + most] for value in values) for at in starts]


def batches(inputs):
    """The inputs of calls one after another; those of a DataLoader of PyTorch are a `Batch`."""
    of_loader = type(inputs).__module__.startswith("torch.utils.data")
    return (Batch(call) for call in each(inputs)) if of_loader else each(inputs)


def each(inputs):
    """Iterates over the inputs of calls."""
    if isinstance(inputs, (str, bytes, os.PathLike)):
        raise TypeError(
            f"calibration: expected an iterable of inputs, got {inputs!r}; read the file first, such as with numpy.load, or give it to "
            "`rushlight quantize --calibrate`"
        )
    try:
        return iter(inputs)
    except TypeError:
        raise TypeError(
            f"calibration: expected an iterable of inputs, got {type(inputs).__name__}; for one input, give a list of it"
        ) from None


def check(quantize, calibration, methods):
    """Checks the arguments, and returns the Quantization, or None, and the calls. Raises ValueError or TypeError."""
    quantize = settings(quantize)
    if quantize is None:
        if calibration is not None:
            raise ValueError("calibration is for a quantization: add quantize=\"int8\", or leave it out")
        return None, {}
    if quantize.scheme not in SCHEMES:
        raise ValueError(f"no scheme is called {quantize.scheme!r}: choose one of {', '.join(SCHEMES)}")
    check_text("the observer of a Quantization", quantize.observer)
    check_text("the weights of a Quantization", quantize.weights)
    if isinstance(quantize.keep, str):
        raise TypeError(f"keep of a Quantization must be a tuple of names, got {quantize.keep!r}; write keep=({quantize.keep!r},)")
    for name in quantize.keep:
        check_text("a name that a Quantization keeps", name)
    check_bool("bias_correction of a Quantization", quantize.bias_correction)
    if quantize.min_snr is not None and not isinstance(quantize.min_snr, numbers.Real):
        raise TypeError(f"min_snr of a Quantization must be a float or None, got {quantize.min_snr!r}")
    check_count("embeddings of a Quantization", quantize.embeddings, 8)
    samples = calls(calibration, methods)
    return quantize, samples


def request(quantize, calibration, sources):
    """Returns the compiler's settings; None for no quantization. `sources` are the methods with their exported programs."""
    sources = dict(sources)
    quantize, samples = check(quantize, calibration, list(sources))
    if quantize is None:
        return None
    samples = [(method, _arguments(method, sources.get(method), inputs)) for method, inputs in samples.items()]
    return {**quantize._asdict(), "keep": list(quantize.keep), "samples": samples}


def _arguments(method, source, inputs):
    """Returns the inputs of calls in the order of the method's inputs."""
    # The compiler's error for an unknown method lists the known ones.
    if not inputs or source is None:
        return []
    signature = of_exported(method, source)
    calls = (call for one in inputs for call in (one.calls(signature) if isinstance(one, Batch) else [one]))
    return [_checked(signature, method, index, call) for index, call in enumerate(calls)]


def _checked(signature, method, index, call):
    """Returns the inputs of a call in order. Its errors say what a calibration takes, before the model runs."""
    leaves = list(signature.arguments(call))
    place = f"calibration of `{method}`, call {index}"
    if len(leaves) != len(signature.ranks):
        names = ", ".join(f"`{name}`" for name in signature.names)
        keys = f" with the keys {', '.join(map(repr, call))}" if isinstance(call, Mapping) else ""
        raise TypeError(
            f"{place}: expected {count(len(signature.ranks), 'input')} ({names}), got {len(leaves)}{keys}; give the inputs alone, such as "
            "[x for x, label in samples], or a torch.utils.data.DataLoader, whose labels are ignored"
        )
    # Parameters with containers have more inputs than names.
    names = signature.names if len(signature.names) == len(leaves) else range(len(leaves))
    for name, rank, leaf in zip(names, signature.ranks, leaves):
        if rank is not None and len(getattr(leaf, "shape", (None,) * rank)) == rank - 1:
            raise ValueError(
                f"{place}: input `{name}` has {rank - 1} dimensions, and the model takes {rank}; add the batch, such as "
                "[x[None] for x in samples], or give a torch.utils.data.DataLoader(samples)"
            )
    return leaves
