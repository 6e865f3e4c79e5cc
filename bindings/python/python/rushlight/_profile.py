"""Times of a module's runs, of its operators and of the steps of its delegates."""

import json
import math
import os
from typing import NamedTuple, Optional

from ._text import Table, printable_with_repr

_SLOWEST = 10
# Maximum events in a table.
_MAX_EVENTS = 40
# From the outermost to the innermost.
_KINDS = ("execution", "instruction", "step")


@printable_with_repr
class Benchmark:
    """The times of the runs of a method, in seconds. `times` has all of them, in the order of the runs."""

    __slots__ = ("times",)

    def __init__(self, times):
        self.times = times

    @property
    def median(self):
        """The time that half of the runs stay below."""
        return self._at(0.5)

    @property
    def fastest(self):
        """The shortest time."""
        return min(self.times)

    def _at(self, part):
        ordered = sorted(self.times)
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)]

    def _parts(self):
        times = (self.median, self.fastest, self._at(0.1), self._at(0.9))
        header = ("median", "fastest", "10 %", "90 %", "runs")
        return [Table([header, (*map(_duration, times), len(self.times))], right=range(5))]


class OperatorTime(NamedTuple):
    """The time of all calls of an operator, or of all copies.

    `seconds` is the sum in one run, `share` the part of the run, from 0 to 1. `calls` counts those of one run.
    """

    name: str
    calls: int
    seconds: float
    share: float


class InstructionTime(NamedTuple):
    """The time of an instruction of the method, in one run.

    `name` is the operator or the delegate. `node`, `module` and `source` are those of the exported program, if known.
    """

    instruction: int
    name: str
    seconds: float
    share: float
    node: Optional[str]
    module: Optional[str]
    source: Optional[str]


class StepTime(NamedTuple):
    """The time of a step of a delegate, in one run.

    `share` is the part of all steps, from 0 to 1. `flops_per_s` and `bytes_per_s` are 0 if the backend does not count them.
    `limit_share` is the part of the nearer limit of the device that they reach, and `limit` is "compute" or "memory"; both are None if the
    limits are unknown. `node`, `module` and `source` are those of the exported program, if known.
    """

    instruction: int
    step: int
    backend: str
    kind: str
    seconds: float
    share: float
    flops_per_s: float
    bytes_per_s: float
    limit_share: Optional[float]
    limit: Optional[str]
    node: str
    module: str
    source: Optional[str]


class Limit(NamedTuple):
    """The measured limits of a backend's device: floating-point operations and bytes per second."""

    backend: str
    device: str
    flops_per_s: float
    bytes_per_s: float


@printable_with_repr
class Profile:
    """The times of a method. `seconds` is the time of one run. `operators`, `instructions` and `steps` divide it; they are in the order of
    the method, but for operators, whose slowest is the first. `limits` has the limits of the devices.
    """

    __slots__ = ("_trace", "instructions", "limits", "operators", "seconds", "steps")

    def __init__(self, text, trace):
        data = json.loads(text)
        self._trace = trace
        self.seconds = data["execution_ns"] * 1e-9
        self.operators = [
            OperatorTime(row["name"], row["calls"], row["ns"] * 1e-9, row["share"]) for row in data["operators"]
        ]
        self.instructions = [
            InstructionTime(
                row["instruction"], row["name"], row["ns"] * 1e-9, row["share"], row.get("node"), row.get("module"), row.get("source")
            )
            for row in data["instructions"]
        ]
        self.steps = [_step(row) for row in data["steps"]]
        self.limits = [Limit(**row) for row in data["limits"]]

    def slowest(self, count=_SLOWEST):
        """The slowest steps, or the slowest instructions of a method without delegates."""
        rows = self.steps or self.instructions
        return sorted(rows, key=lambda row: -row.seconds)[:count]

    def save_trace(self, path):
        """Writes the start and the end of each instruction and step to a JSON file, for Perfetto (ui.perfetto.dev) and Chrome."""
        _write(path, self._trace)

    def _parts(self):
        operators = [("operator", "calls", "time", "share")]
        operators += [(row.name, row.calls, _duration(row.seconds), _percent(row.share)) for row in self.operators]
        parts = [f"one run: {_duration(self.seconds)}", "", Table(operators, right=(1, 2, 3))]
        if self.steps:
            steps = [("step", "time", "share", "GFLOP/s", "GB/s", "of limit", "node", "module", "source")]
            steps += [
                (
                    row.kind, _duration(row.seconds), _percent(row.share), f"{row.flops_per_s * 1e-9:.1f}", f"{row.bytes_per_s * 1e-9:.1f}",
                    "" if row.limit_share is None else f"{_percent(row.limit_share)} {row.limit}", row.node, row.module, _place(row.source),
                )
                for row in self.slowest()
            ]
            parts += ["", Table(steps, right=(1, 2, 3, 4, 5))]
        return parts


def _write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class TraceEvent(NamedTuple):
    """A part of a run: its start in seconds after the first, and its time.

    `kind` is "execution" for a whole run, "instruction" for an instruction of the method, whose name is the operator or delegate, and
    "step" for a step of a delegate, whose name is the value that it computes. `details` has the numbers that are known, such as
    "instruction", "step", "backend" and "gflops".
    """

    name: str
    kind: str
    start: float
    seconds: float
    details: dict


@printable_with_repr
class Trace:
    """The parts of runs in the order of their starts. `events` has them as `rushlight.TraceEvent`s."""

    __slots__ = ("_text", "events")

    def __init__(self, text):
        self._text = text
        events = [
            TraceEvent(row["name"], row["cat"], row["ts"] * 1e-6, row["dur"] * 1e-6, row["args"])
            for row in json.loads(text)["traceEvents"]
        ]
        # An instruction comes before its steps.
        self.events = sorted(events, key=lambda event: (event.start, _KINDS.index(event.kind)))

    def save(self, path):
        """Writes the events to a JSON file, for Perfetto (ui.perfetto.dev) and Chrome."""
        _write(path, self._text)

    def _parts(self):
        rows = [("start", "time", "event")]
        for event in self.events[:_MAX_EVENTS]:
            indent = "  " * _KINDS.index(event.kind)
            rows.append((_duration(event.start), _duration(event.seconds), f"{indent}{event.name}"))
        parts = [Table(rows, right=(0, 1))]
        if len(self.events) > _MAX_EVENTS:
            parts.append(f"... and {len(self.events) - _MAX_EVENTS} more")
        return parts


def _step(row):
    fields = ("instruction", "step", "backend", "kind")
    rates = (row["flops_per_s"], row["bytes_per_s"], row.get("limit_share"), row.get("limit"))
    origin = (row["node"], row["module"], row["source"])
    return StepTime(*(row[name] for name in fields), row["ns"] * 1e-9, row["share"], *rates, *origin)


def _place(source):
    """The file and the line, without folders."""
    return os.path.basename((source or "").partition(" in ")[0])


def _percent(share):
    return f"{100 * share:.1f} %"


def _duration(seconds):
    for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 1000 else f"{math.floor(seconds * factor)} {unit}"
    return f"{seconds * 1e9:.3g} ns"
