"""Calls that PyTorch's own operator samples (OpInfo) make, as cases of the operators that programs name."""

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._python_dispatch import TorchDispatchMode

from . import schema
from .cases import tensors_in

SMALL = 64
PER_DTYPE = 6
LARGE_PER_OPERATOR = 3
PER_SOURCE = 40


def targets(names):
    """Every overload that eager PyTorch may call -> the operator that a program calls instead."""
    table = {}
    for name in names:
        op = schema.operator(name)
        table[op.functional] = name
        table[op.overload] = name
        packet = op.functional._overloadpacket
        which = op.functional._overloadname
        namespace = torch.ops.aten
        base = packet._qualified_op_name.split("::")[1]
        for alias in (base + "_", base.removesuffix("_copy")):
            other = getattr(getattr(namespace, alias, None), which, None)
            if other is not None and other not in table:
                table[other] = name
        if base == "_to_copy":
            table[torch.ops.aten._to_copy.default] = name
    return table


class Recorder(TorchDispatchMode):
    """Records the calls of the operators in `table` until `limit` calls of one are kept."""

    def __init__(self, table):
        super().__init__()
        self.table = table
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        target = self.table.get(scalar_overload(func, args))
        if target:
            names = [a.name for a in func._schema.arguments]
            bound = dict(zip(names, args)) | kwargs
            outs = {a.name for a in func._schema.arguments if a.is_out}
            self.calls.append((target, {k: snapshot(v) for k, v in bound.items() if k not in outs}))
        return func(*args, **kwargs)


def scalar_overload(func, args):
    """A Python number in a tensor's place is what the Scalar overload takes."""
    if len(args) > 1 and isinstance(args[1], (int, float, bool)) and func._overloadname in ("Tensor", "Tensor_mode"):
        if str(func._schema.arguments[1].type) == "Tensor":
            return getattr(func._overloadpacket, func._overloadname.replace("Tensor", "Scalar"), None)
    return func


def snapshot(value):
    """A copy whose floats are multiples of 2^-10, which keeps the files small."""
    if isinstance(value, torch.Tensor):
        copy = value.detach().clone()
        if copy.dtype in (torch.float32, torch.float64) and copy.isfinite().all():
            copy = (copy * 1024).round() / 1024
        return copy
    if isinstance(value, (list, tuple)):
        return [snapshot(v) for v in value]
    return value


def quota_key(name, bound):
    tensors = tensors_in(list(bound.values()))
    return name, tensors[0].dtype if tensors else None


def run_samples(info, dtype, table):
    """The recorded calls of one operator's samples in one dtype."""
    torch.manual_seed(0)
    calls = []
    try:
        samples = list(info.sample_inputs("cpu", dtype, requires_grad=False))
    except Exception:  # A sample function that needs what this build lacks says nothing of the operator.
        return calls
    for sample in samples[:PER_SOURCE]:
        if not isinstance(sample, SampleInput):
            continue
        with Recorder(table) as recorder, torch.no_grad():
            try:
                info.op(sample.input, *sample.args, **sample.kwargs)
            except Exception:  # Recorded calls before the failure stand on their own.
                pass
        calls.extend(recorder.calls)
    return calls


def collect(cases, sources, names, dtypes, numel=200, per_dtype=PER_DTYPE, options=lambda name: {}):
    """Adds the calls that the samples of the OpInfos named `sources` make of the operators `names`."""
    table = targets(names)
    kept = {}
    large = {}
    cases.source = "opinfo"
    infos = [i for i in op_db if i.name in sources]
    for dtype in dtypes:
        for info in infos:
            if dtype not in info.dtypes:
                continue
            for name, bound in run_samples(info, dtype, table):
                key = quota_key(name, bound)
                total = sum(t.numel() for t in tensors_in(list(bound.values())))
                if kept.get(key, 0) >= per_dtype or total > numel:
                    continue
                if total > SMALL and large.get(name, 0) >= LARGE_PER_OPERATOR:
                    continue
                if call(cases, name, bound, options(name)):
                    kept[key] = kept.get(key, 0) + 1
                    if total > SMALL:
                        large[name] = large.get(name, 0) + 1
    cases.source = "edge"


def call(cases, name, bound, options):
    functional = schema.operator(name).functional
    known = {a.name for a in functional._schema.arguments}
    return cases.call(name, **{k: v for k, v in bound.items() if k in known}, **options)


