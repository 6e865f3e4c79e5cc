"""Collects the cases of one family: runs PyTorch eager on given arguments and records the result."""

import hashlib
import json
import warnings
from collections import Counter, defaultdict

import torch

from . import encode, schema

warnings.filterwarnings("ignore")


class Rejected(Exception):
    """The call is not a case: programs do not make it, or its result is too large."""


def type_text(arg):
    """`Optional[List[int]]`-like schema types as `int[]`."""
    text = str(arg.real_type if hasattr(arg, "real_type") else arg.type)
    optional = text.startswith("Optional[")
    if optional:
        text = text[len("Optional[") : -1]
    if text.startswith("List["):
        inner = text[len("List[") : -1]
        if inner.startswith("Optional["):
            inner = inner[len("Optional[") : -1] + "?"
        text = f"{inner}[{arg.N or ''}]"
    text = text.replace("number", "Scalar")
    return text + ("?" if optional else "")


def copies(value):
    if isinstance(value, torch.Tensor):
        return encode.dense(value).clone(memory_format=torch.preserve_format)
    if isinstance(value, (list, tuple)):
        return [copies(v) for v in value]
    return value


def magnitudes(value):
    """The value with every float tensor replaced by its absolute values in double precision."""
    if isinstance(value, torch.Tensor):
        return value.double().abs() if value.dtype.is_floating_point else value
    if isinstance(value, (list, tuple)):
        return [magnitudes(v) for v in value]
    if isinstance(value, float):
        return abs(value)
    return value


# Operators that programs use with complex numbers; eager PyTorch accepts them in more.
COMPLEX = set(
    "_conj_physical abs add alias_copy as_strided_copy bmm cat clone copy copy_ _clone_dim_order _to_dim_order_copy _to_copy detach_copy "
    "diagonal_copy div _empty_dim_order empty expand_copy _fft_c2r _fft_r2c fallback _h2d_copy _d2h_copy lift_fresh_copy mul narrow_copy "
    "permute_copy pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d reflection_pad3d repeat replication_pad1d "
    "replication_pad2d replication_pad3d select_copy slice_copy split_copy split_with_sizes_copy squeeze_copy stack sum t_copy "
    "transpose_copy unbind_copy unfold_copy unsqueeze_copy view_as_real_copy view_copy".split()
)


def converted(value, dtype, to):
    """The value with its tensors of one dtype in another."""
    if isinstance(value, torch.Tensor):
        return value.to(to) if value.dtype == dtype else value
    if isinstance(value, (list, tuple)):
        return [converted(v, dtype, to) for v in value]
    return value


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_in(v)]
    return []


class Cases:
    """The cases of one family, in the order in which they were made."""

    def __init__(self, per_op=150, max_numel=2000):
        self.lines = []
        self.seen = set()
        self.count = Counter()
        self.dtypes = defaultdict(set)
        self.sources = defaultdict(set)
        self.rejected = Counter()
        self.per_op = per_op
        self.max_numel = max_numel
        self.source = "edge"

    def call(self, name, /, *args, **kwargs):
        """Records one call, given the functional overload's arguments. False where PyTorch rejects it.

        Options (all start with an underscore): `_name` a short id; `_out` the dtype of the output
        where it is not the computed one; `_check` how to compare instead of by value; `_mag` true
        where rounding errors scale with the sum of the magnitudes of what is accumulated;
        `_expect` a function of the bound arguments that replaces the functional overload;
        `_as` a dtype that stands in for the first tensor's, which PyTorch lacks there: computed in it and converted back;
        `_unspecified` the indices of results whose values do not count;
        `_tol` a (rtol, atol) pair where the operator's row does not hold.
        """
        options = {k[1:]: kwargs.pop(k) for k in list(kwargs) if k.startswith("_")}
        op = schema.operator(name)
        if self.count[name] >= self.per_op:
            return False
        try:
            bound = schema.bind(op, args, kwargs)
            bound = {k: copies(v) for k, v in bound.items()}
            short = name.partition("::")[2].partition(".")[0]
            if short not in COMPLEX and any(t.dtype.is_complex for t in tensors_in(list(bound.values()))):
                raise Rejected("not a complex operator")
            if isinstance(bound.get("index"), torch.Tensor) and bound["index"].dtype not in (torch.int64, torch.int32):
                raise Rejected("programs index by int64 or int32")
            line = self._record(op, bound, options)
        except (Rejected, RuntimeError, IndexError, TypeError, ValueError, NotImplementedError, AttributeError) as e:
            if self.source == "edge":
                self.rejected[f"{name}: {str(e).splitlines()[0][:90]}"] += 1
            return False
        return self._add(name, line, options.get("name"), tensors_in(list(bound.values())))

    def raw(self, name, args, expect, label, dtypes=(), **extra):
        """Records a case whose arguments and results are encoded already."""
        self._add(name, {"args": args, "expect": expect} | extra, label, [])
        self.dtypes[name].update(dtypes)

    def _record(self, op, bound, options):
        expect = []
        args = []
        written = [a for a in op.inputs if a.is_write]
        before = {a.name: encode.tensor(bound[a.name]) for a in written}
        for arg in op.inputs:
            if arg.name in before:
                args.append(arg.name)
            else:
                args.append(encode.argument(bound.get(arg.name), type_text(arg)))
        mag = self._magnitude(op, bound) if options.get("mag") else None
        results = self._evaluate(op, bound, options)
        outs = []
        for result in results if op.outs else []:
            if isinstance(result, (list, tuple)):
                start = len(expect)
                expect.extend(encode.tensor(t) for t in result)
                outs.append({"outl": list(range(start, len(expect)))})
            else:
                expect.append(encode.tensor(result))
                outs.append({"out": len(expect) - 1})
        for arg in written:
            args[args.index(arg.name)] = {"inout": before[arg.name], "expect": len(expect)}
            expect.append(encode.tensor(bound[arg.name]))
        if any(len(e["d"]) > 4 * 8 * self.max_numel for e in expect):
            raise Rejected("result too large")
        line = {"args": args + outs, "expect": expect}
        for key in ("check", "tol", "unspecified"):
            if options.get(key) is not None:
                line[key] = options[key]
        if mag is not None:
            line["mag"] = mag
        return line

    def _evaluate(self, op, bound, options):
        if options.get("expect"):
            result = options["expect"](bound)
        elif options.get("as"):
            dtype, to = tensors_in(list(bound.values()))[0].dtype, options["as"]
            result = converted(op.functional(**{k: converted(v, dtype, to) for k, v in bound.items()}), to, dtype)
        elif options.get("out") is not None:
            wanted = options["out"]
            outs = [torch.empty(0, dtype=d) for d in (wanted if isinstance(wanted, tuple) else (wanted,))]
            given = {a.name: bound[a.name] for a in op.inputs}
            given.update({a.name: o for a, o in zip(op.outs, outs)})
            try:
                op.overload(**given)
            except RuntimeError as e:
                # Generated out variants do not cast; ExecuTorch's kernels do, as structured ones do.
                result = op.functional(**bound)
                if "Expected out tensor to have dtype" not in str(e) or len(outs) > 1 or not torch.can_cast(result.dtype, outs[0].dtype):
                    raise
                outs = [result.to(outs[0].dtype)]
            result = outs if len(outs) > 1 else outs[0]
        else:
            result = op.functional(**bound)
        results = list(result) if len(op.outs) > 1 else [result]
        # What is not compared by value is kept out of the file.
        return [torch.zeros_like(r) for r in results] if options.get("check") else results

    def _magnitude(self, op, bound):
        bound = {k: magnitudes(v) if k != "dtype" else None for k, v in bound.items()}
        if op.name.startswith("aten::mean"):
            bound["dtype"] = torch.float64
        result = op.functional(**bound)
        largest = max((t.double().abs().nan_to_num(posinf=0).max().item() for t in tensors_in([result]) if t.numel()), default=0.0)
        return float(f"{largest:.3g}")

    def _add(self, name, line, label, tensors):
        if any(t.numel() > self.max_numel for t in tensors):
            self.rejected[f"{name}: an input too large"] += self.source == "edge"
            return False
        key = hashlib.sha256(json.dumps([name, line]).encode()).digest()
        if key in self.seen or self.count[name] >= self.per_op:
            return False
        self.seen.add(key)
        self.count[name] += 1
        label = label or "-".join(dict.fromkeys(encode.NAMES[t.dtype] for t in tensors)) or "case"
        self.dtypes[name].update(encode.NAMES[t.dtype] for t in tensors)
        self.dtypes[name].update(e["t"] for e in line["expect"] if "t" in e)
        self.sources[name].add(self.source)
        self.lines.append({"op": name, "name": f"{label}#{self.count[name]}", "src": self.source} | line)
        return True
