"""Runs random programs in all ways and compares them with eager PyTorch, for `random_programs`."""

import collections
import io
import re

import rushlight
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

MODES = ("reference", "lowered", "compiled", "limited", "batch", "reference batch")
# By the least precise element type that a result is computed from.
TOLERANCES = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float16: 1e-2, torch.bfloat16: 6e-2}
TOLERANCES |= {torch.float8_e4m3fn: 0.2, torch.float8_e5m2: 0.4}

# The operands whose NaN decide a result by their order or sign.
NAN_DECIDES = re.compile(r"torch\.mode\((\w+),|torch\.unique\((\w+)|torch\.signbit\((\w+)\)|torch\.copysign\(\w+, (\w+)\)")
# The operands whose sign decides a result.
SIGN_DECIDES = re.compile(r"torch\.signbit\((\w+)\)|torch\.copysign\(\w+, (\w+)\)")
# The operands of casts that cut off fractions, and of a division by a norm or a constant that f16 rounds to 0.
CUT_OFF = re.compile(r"(\w+)\.to\(torch\.u?int|(\w+)\.long\(\)")
NORMALIZED = re.compile(r"F\.normalize\((\w+)")
# The operands of resizing; results and operands of antialiased resizing.
RESIZED = re.compile(r"F\.interpolate\((\w+),")
ANTIALIASED = re.compile(r"(\w+) = F\.interpolate\((\w+),.*antialias=True")
# The operands whose poles give a number that the rounding of pi decides.
POLES = re.compile(r"torch\.polygamma\(\d, (\w+)\)|torch\.(?:digamma|special\.psi)\((\w+)\)")
# The operands that decide between a number and NaN at 0.
ZERO_DECIDES = re.compile(r"torch\.igammac?\((\w+)(?:\.abs\(\))?,")
# The operands whose order decides a result, and functions whose last bit differs between libraries.
ORDER_DECIDES = re.compile(r"torch\.(?:arg)?sort\((\w+)|torch\.(?:topk|mode|median|kthvalue|argmax|argmin)\((\w+)")
LAST_BIT = re.compile(r"torch\.(?:special\.|log|exp|logit|sin|cos|tan|sinh|cosh|tanh|sigmoid|erf|pow|lgamma)\w*\(")
CASTS_TO_INT = re.compile(r"\.to\(torch\.u?int|\.long\(|dtype=torch\.u?int")


class Group(torch.nn.Module):
    """Programs as parts of one module, which takes the inputs of all and returns the outputs of all."""

    def __init__(self, programs):
        super().__init__()
        self.parts = torch.nn.ModuleList(program.module() for program in programs)
        self.counts = [len(program.inputs) for program in programs]

    def forward(self, *inputs):
        outputs, first = [], 0
        for part, count in zip(self.parts, self.counts, strict=True):
            outputs.extend(part(*inputs[first : first + count]))
            first += count
        return tuple(outputs)


class Case:
    """A program, and what eager gives for each of its inputs."""

    def __init__(self, program):
        self.program = program
        self.calls = {"example": program.inputs}
        self.wanted = {"example": run(program.module(), program.inputs)}
        self.limits = [TOLERANCES.get(program.precision_of(name), 1e-4) for name in program.outputs]
        self.raised = {}
        for name, inputs in program.other_inputs().items():
            try:
                self.wanted[name], self.calls[name] = run(program.module(), inputs), inputs
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
                self.raised[name] = (inputs, error)

    def inputs(self, name):
        return self.calls.get(name, self.calls["example"])

    def want(self, name):
        return self.wanted.get(name, self.wanted["example"])


class Tally:
    """Counts what became of programs."""

    def __init__(self, modes=MODES):
        self.modes = modes
        self.counts = collections.Counter()
        self.refusals, self.failures = collections.Counter(), []
        self.first_refused = {}

    def check(self, programs):
        """Runs programs as parts of one module, and its halves where it fails."""
        self.counts["empty"] += sum(not program.outputs for program in programs)
        with torch.no_grad():
            cases = [Case(program) for program in programs if program.outputs]
            self.counts["programs"] += len(cases)
            self.counts["varying"] += sum(case.program.varied is not None for case in cases)
            self.check_cases(cases)

    def check_cases(self, cases):
        if not cases:
            return
        outcome = Outcome(cases, self.modes)
        if len(cases) == 1:
            self.count_one(cases[0], outcome)
        elif outcome.error is not None:
            half = len(cases) // 2
            self.check_cases(cases[:half])
            self.check_cases(cases[half:])
        else:
            self.counts.update(outcome.counts)
            for index, mode, problem in outcome.problems:
                alone = Outcome([cases[index]], self.modes)
                seeds = [case.program.seed for case in cases]
                if alone.error is None and not alone.problems:
                    problem = f"as one of the seeds {seeds}, not alone: {problem}"
                self.fail(cases[index], mode, problem)

    def count_one(self, case, outcome):
        self.counts.update(outcome.counts)
        for _, mode, problem in outcome.problems:
            self.fail(case, mode, problem)
        if outcome.error is None:
            return
        stage, error = outcome.error
        if stage == "export":
            self.counts["not exported"] += 1
        elif isinstance(error, rushlight.Error) and stage in ("compile", "compiled") and not is_defect(error):
            self.refuse(case.program, error)
        elif isinstance(error, ValueError) and "cannot read this Tensor: elements of type torch.float8" in str(error):
            self.refuse(case.program, error)
        else:
            self.fail(case, stage, f"{type(error).__name__}: {error}")

    def refuse(self, program, error):
        """Counts a refusal by its reason, without the numbers in it."""
        reason = re.sub(r"v\d+|x\d+|_\d+|\d+", "N", str(error).split("\n")[0])
        self.refusals[reason] += 1
        self.first_refused.setdefault(reason, program.seed)
        self.counts["refused"] += 1

    def fail(self, case, mode, problem):
        self.failures.append((case.program.seed, mode, problem))
        print(f"{case.program.describe()}\n# {mode}: {problem}\n", flush=True)

    def report(self):
        for reason, count in self.refusals.most_common():
            print(f"refused {count}: {reason} (seed {self.first_refused[reason]})")
        print(", ".join(f"{count} {what}" for what, count in self.counts.items()))
        seeds = sorted({seed for seed, _, _ in self.failures})
        print(f"{len(seeds)} failures: {seeds[:100]}", flush=True)


class Outcome:
    """What becomes of a module of some programs: `problems` of single programs, or the `error` of all with its stage."""

    def __init__(self, cases, modes):
        self.cases, self.problems, self.error = cases, [], None
        self.counts = collections.Counter()
        stage = "export"
        try:
            self.exported = self.export()
            names, self.odd = self.names_of_calls(), set(self.contradictions())
            self.counts["torch contradicts itself"] += len(self.odd)
            stage = "compile"
            file = io.BytesIO()
            torch.export.save(self.exported, file)
            archive = file.getvalue()
            portable = rushlight.compile(archive, progress=False).buffer
            compiled = None
            for mode in modes:
                stage = mode
                if mode in ("compiled", "batch"):
                    compiled = compiled or rushlight.compile(archive, backend="cpu", progress=False).buffer
                self.run_mode(mode, load(mode, portable, compiled), names)
                self.counts[mode] += len(cases)
        except Exception as error:
            self.error = stage, error

    def export(self):
        programs = [case.program for case in self.cases]
        inputs = tuple(value.clone() for program in programs for value in program.inputs)
        shapes = tuple(shape for program in programs for shape in program.dynamic_shapes())
        varies = any(program.varied for program in programs)
        return torch.export.export(Group(programs), inputs, dynamic_shapes={"inputs": shapes} if varies else None, strict=False)

    def contradictions(self):
        """Indices of programs of which eager gives other types or shapes than `torch.export` recorded."""
        (output,) = (node for node in self.exported.graph.nodes if node.op == "output")
        values, first = [node.meta["val"] for node in output.args[0]], 0
        for index, case in enumerate(self.cases):
            want = case.want("example")
            recorded = values[first : first + len(want)]
            first += len(want)
            if any(not agrees(value, like) for value, like in zip(want, recorded, strict=True)):
                yield index

    def names_of_calls(self):
        """Names of the inputs of each call. The first is made again after the others."""
        if any("resized" in case.calls for case in self.cases):
            return ["example", "flipped", "resized", "example"]
        return ["example", "flipped", "example"]

    def inputs(self, name):
        """The inputs of a call: the example's of programs whose sizes `torch.export` fixed."""
        chosen = []
        for case, takes in zip(self.cases, self.takes(name), strict=True):
            chosen.append((name, case.inputs(name)) if takes else ("example", case.inputs("example")))
        return chosen

    def takes(self, name):
        """For each program, whether the exported module takes inputs of these sizes."""
        placeholders = [node for node in self.exported.graph.nodes if node.op == "placeholder"]
        users = [spec.arg.name for spec in self.exported.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
        by_name = {node.name: node.meta["val"] for node in placeholders}
        values, first = [by_name[name] for name in users], 0
        for case in self.cases:
            given = case.inputs(name)
            expected = values[first : first + len(given)]
            first += len(given)
            yield all(self.fits(value, like) for value, like in zip(given, expected, strict=True))

    def fits(self, value, like):
        """Whether a tensor has the sizes of another, which may be symbols."""
        for size, expected in zip(value.shape, like.shape, strict=True):
            if isinstance(expected, int):
                if size != expected:
                    return False
            else:
                bounds = self.exported.range_constraints.get(expected.node.expr)
                if bounds is None or not bounds.lower <= size <= bounds.upper:
                    return False
        return True

    def run_mode(self, mode, loaded, names):
        if "batch" in mode:
            calls = [self.inputs(name) for name in dict.fromkeys(names)]
            flat = [[value.clone() for _, inputs in call for value in inputs] for call in calls]
            if "resized" in names and self.raises(flat[-1]):
                # Guards refuse these sizes, and one call that is refused ends the batch.
                calls, flat = calls[:-1], flat[:-1]
            results = loaded._core.run_batch("forward", flat)
            each = len(results) // len(calls)
            for index, call in enumerate(calls):
                self.compare(mode, call, results[index * each : (index + 1) * each])
            return
        for name in names:
            call = self.inputs(name)
            inputs = [value for _, inputs in call for value in inputs]
            try:
                self.compare(mode, call, run(loaded, inputs))
            except rushlight.Error:
                if name != "resized" or not self.raises(inputs):
                    raise
                self.counts["size refused"] += 1

    def raises(self, inputs):
        """Whether the exported module raises, too, as its guards say."""
        try:
            run(self.exported.module(), inputs)
        except Exception:
            return True
        return False

    def compare(self, mode, call, results):
        first = 0
        for index, (case, (name, inputs)) in enumerate(zip(self.cases, call, strict=True)):
            want = case.want(name)
            got = results[first : first + len(want)]
            first += len(want)
            found = difference(got, want, case.limits)
            if found is None or index in self.odd or any(index == known for known, _, _ in self.problems):
                continue
            if is_unstable(case.program, inputs):
                self.counts["unstable"] += 1
            else:
                self.problems.append((index, mode, f"{name}: {found}"))


def agrees(value, recorded):
    """Whether a tensor has the type and the sizes that `torch.export` recorded for its example, as far as it knew them."""
    if value.dtype != recorded.dtype or value.dim() != recorded.dim():
        return False
    for size, known in zip(value.shape, recorded.shape, strict=True):
        if isinstance(known, int) or known.node.has_hint():
            if size != (known if isinstance(known, int) else known.node.hint):
                return False
    return True


def load(mode, portable, compiled):
    if mode in ("compiled", "batch"):
        return rushlight.load(compiled)
    lower = "off" if mode.startswith("reference") else "cpu"
    limit = {"time_limit": 60.0} if mode == "limited" else {}
    return rushlight.load(portable, lower=lower, **limit)


def run(core, inputs):
    result = core(*(value.clone() for value in inputs))
    return list(result) if isinstance(result, (tuple, list)) else [result]


def difference(got, want, limits):
    """What differs by more than the limit of each result; None if they agree."""
    if len(got) != len(want):
        return f"{len(got)} results for {len(want)}"
    for index, (ours, theirs, limit) in enumerate(zip(got, want, limits, strict=True)):
        ours = torch.as_tensor(ours)
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return f"result {index} is {ours.dtype} {list(ours.shape)} for {theirs.dtype} {list(theirs.shape)}"
        if theirs.numel() == 0:
            continue
        if not (theirs.is_floating_point() or theirs.is_complex()):
            if not torch.equal(ours, theirs):
                return f"result {index} is {short(ours)} for {short(theirs)}"
            continue
        wide = torch.complex128 if theirs.is_complex() else torch.float64
        ours, theirs = ours.to(wide), theirs.to(wide)
        scale = theirs.abs().nan_to_num(0, 0, 0).max().item()
        if not torch.allclose(ours, theirs, rtol=limit, atol=limit * max(scale, 1.0), equal_nan=True):
            return f"result {index} is {short(ours)} for {short(theirs)}"
    return None


def short(tensor):
    text = str(tensor.flatten().tolist())
    return text if len(text) < 160 else text[:160] + "..."


def is_unstable(program, inputs):
    """True if rounding decides eager's result: it changes in f64, or with inputs that are a little larger or smaller.

    Also true for results that eager itself gives in two ways, see `is_arbitrary`.
    """

    def as_double(value):
        return value.double() if value.is_floating_point() else value

    def larger(value):
        return (value.double() * (1 + 3e-7) + 1e-7).to(value.dtype) if value.is_floating_point() else value

    def smaller(value):
        return (value.double() * (1 - 3e-7) - 1e-7).to(value.dtype) if value.is_floating_point() else value

    values = program.values_of(inputs)
    floats = [value for value in values.values() if value.is_floating_point()]
    if any(value.numel() and value.abs().nan_to_num(0, 0, 0).max() > 1e15 for value in floats):
        # Squares and sums of such numbers overflow in one order and not in another.
        return True
    if CASTS_TO_INT.search(program.source()) and any(not value.isfinite().all() for value in floats):
        # The processor decides the integers of infinities and NaN.
        return True
    if is_arbitrary(program, values, inputs):
        return True
    want = [as_double(values[name]) for name in program.outputs]
    lowest = min((value.dtype.itemsize for value in floats), default=4)
    for change in (as_double, larger, smaller):
        try:
            other = program.module()
            for name, value in program.buffers.items():
                setattr(other, name, change(value))
            got = [as_double(value) for value in run(other, [change(value) for value in inputs])]
            if difference(got, want, [1e-2 if lowest <= 2 else 3e-5] * len(want)):
                return True
        except (RuntimeError, TypeError, ValueError, IndexError):
            return lowest <= 2
    return False


def is_arbitrary(program, values, inputs):
    """True if NaN makes eager's result depend on the order of the same numbers, or on the choice between its own kernels.

    The processor's instruction decides the sign of NaN: 0/0 has one, the root of -1 has none. The mode of values with NaN depends on
    their order, because the comparison that sorts them is no order with NaN. If the scores of a query are NaN, the flash kernel of
    attention gives 0 for fewer keys than a vector register holds, and NaN for more. The kernel of plain operators always gives NaN.
    """
    source = program.source()

    def found(pattern):
        """The values whose names the groups of a pattern match."""
        names = (name for match in pattern.finditer(source) for name in match.groups())
        return [values[name] for name in names if name in values]

    operands = found(NAN_DECIDES)
    if any(value.is_floating_point() and value.isnan().any() for value in operands):
        return True
    # Equal numbers are normalized to a zero, whose sign depends on the order of operations.
    signs = found(SIGN_DECIDES)
    if "_norm(" in source and any((value.abs() < 1e-6).any() for value in signs):
        return True
    # A weight of 0 times infinity is NaN where the kernel reads that element.
    if any(not value.isfinite().all() for value in found(RESIZED)):
        return True
    # PyTorch's antialiased resizing from or to a width of 1 repeats one pixel.
    resized = found(ANTIALIASED)
    if any(value.dim() == 4 and value.shape[-1] == 1 for value in resized):
        return True
    halves = found(NORMALIZED)
    if any(value.dtype == torch.float16 and (value == 0).any() for value in halves):
        return True
    cut = found(CUT_OFF)
    if LAST_BIT.search(source) and any(value.is_floating_point() and is_nearly_whole(value) for value in cut):
        return True
    poles = [value.double() for value in found(POLES)]
    if any(((value <= 0) & (value == value.round())).any() for value in poles):
        return True
    # The incomplete gamma function has no limit at (0, 0), and the sum of logarithms that cancel is 0 or a rounding error.
    zeros = found(ZERO_DECIDES)
    if "logaddexp" in source and any((value.abs() < 1e-6).any() for value in zeros):
        return True
    ordered = found(ORDER_DECIDES)
    if LAST_BIT.search(source) and any(map(has_ties, ordered)):
        return True
    if "scaled_dot_product_attention(" not in source:
        return False
    with sdpa_kernel(SDPBackend.MATH):
        plain = program.values_of(inputs)
    names = [name for name in program.values if name.startswith("v")]
    return any(values[name].isnan().ne(plain[name].isnan()).any().item() for name in names)


def is_nearly_whole(value):
    """True if a number of a tensor is an integer but for some last bits."""
    fractions = (value.double() - value.double().round()).abs()
    return bool((fractions <= 8 * torch.finfo(value.dtype).eps * value.double().abs().clamp_min(1)).any())


def has_ties(value):
    """True if two numbers of a tensor are the same but for some last bits."""
    if not value.is_floating_point() or value.numel() < 2:
        return False
    ordered = value.double().flatten().sort().values
    return bool((ordered.diff() <= 8 * torch.finfo(value.dtype).eps * ordered[1:].abs()).any())


def is_defect(error):
    text = str(error)
    return error.code_name in ("Internal",) or "breaks the rules" in text or "defect" in text or "invalid payload" in text
