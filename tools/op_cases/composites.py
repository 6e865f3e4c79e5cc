"""Cases of operators that the compiler makes of simpler ones: functional calls by their own names.

A line's arguments are in schema order; its expected results are all that the call returns, the tensors of a list one by one.
"""

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput

from . import encode, schema
from .cases import tensors_in, type_text
from .opinfo import snapshot


def fresh(value):
    """The value with its tensors row-major in memory of their own."""
    if isinstance(value, torch.Tensor):
        return torch.empty(value.shape, dtype=value.dtype).copy_(value)
    if isinstance(value, (list, tuple)):
        return [fresh(v) for v in value]
    return value


def record(cases, name, *args, _name=None, _unspecified=None, **kwargs):
    """Records a call of the operator `name`. False where PyTorch rejects it."""
    overload = schema.overload(name)
    if cases.count[name] >= cases.per_op:
        return False
    arguments = overload._schema.arguments
    bound = {a.name: a.default_value for a in arguments if a.has_default_value()}
    bound.update(zip([a.name for a in arguments if not a.kwarg_only], args))
    bound.update(kwargs)
    try:
        bound = {k: fresh(v) for k, v in bound.items()}
        given = [encode.argument(bound.get(a.name), type_text(a)) for a in arguments]
        result = overload(**bound)
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError, AttributeError, KeyError) as e:
        cases.rejected[f"{name}: {str(e).splitlines()[0][:90]}"] += cases.source == "edge"
        return False
    expect = [encode.tensor(fresh(t)) for t in tensors_in([result])]
    if not expect or any(len(e["d"]) > 4 * 8 * cases.max_numel for e in expect):
        return False
    line = {"args": given, "expect": expect}
    if _unspecified:
        line["unspecified"] = list(_unspecified)
    return cases._add(name, line, _name, tensors_in(list(bound.values())))


class Recorder(torch.fx.Interpreter):
    """Runs a traced graph and keeps the calls of some overloads."""

    def __init__(self, graph, table):
        super().__init__(graph)
        self.table = table
        self.calls = []

    def call_function(self, target, args, kwargs):
        name = self.table.get(target)
        if name:
            self.calls.append((name, snapshot(list(args)), {k: snapshot(v) for k, v in kwargs.items()}))
        return super().call_function(target, args, kwargs)


def traced_calls(info, sample, table):
    """The calls that a sample makes, as `torch.export` sees them: before composites are decomposed."""
    def function(*tensors):
        rest = iter(tensors)
        filled = torch.utils._pytree.tree_map_only(torch.Tensor, lambda _: next(rest), everything)
        return info.op(filled[0], *filled[1], **filled[2])

    everything = (sample.input, list(sample.args), dict(sample.kwargs))
    tensors = [t for t in torch.utils._pytree.tree_leaves(everything) if isinstance(t, torch.Tensor)]
    graph = make_fx(function, pre_dispatch=True)(*tensors)
    recorder = Recorder(graph, table)
    recorder.run(*tensors)
    return recorder.calls


def collect(cases, sources, names, dtypes, numel=400, per_dtype=8, samples_of_one=24, unspecified={}):
    """Adds the calls of the operators `names` that the samples of the OpInfos named `sources` make."""
    table = {schema.overload(name): name for name in names}
    kept = {}
    cases.source = "opinfo"
    for info in [i for i in op_db if i.name in sources]:
        for dtype in [d for d in dtypes if d in info.dtypes]:
            torch.manual_seed(0)
            try:
                samples = list(info.sample_inputs("cpu", dtype, requires_grad=False))
            except Exception:  # A sample function that needs what this build lacks says nothing of the operator.
                continue
            for sample in samples[:samples_of_one]:
                if not isinstance(sample, SampleInput):
                    continue
                try:
                    calls = traced_calls(info, sample, table)
                except Exception:  # What cannot be traced is not exported either.
                    continue
                for name, args, kwargs in calls:
                    key = name, dtype, info.name
                    if kept.get(key, 0) >= per_dtype or sum(t.numel() for t in tensors_in([args, kwargs])) > numel:
                        continue
                    kept[key] = kept.get(key, 0) + record(cases, name, *args, _unspecified=unspecified.get(name), **kwargs)
    cases.source = "edge"
