"""Comparison of the numbers of an exported program and a compiled one."""

import os
from typing import NamedTuple, Optional

from . import _rushlight
from ._compile import Program, bytes_or_path
from ._progress import Progress
from ._signature import of_exported
from ._text import Table, count, printable_with_repr


class ComparisonRow(NamedTuple):
    """The difference of one result between the exported and the compiled program.

    `result` is its name. `node` and `op` compute it in the exported program. `module` is the path of the called module,
    `source` the line of Python. `max_abs` is the maximum absolute difference, `relative` its ratio to the maximum absolute
    value of the exported program's result, `snr_db` the ratio of their energies in dB. `shapes` has both shapes if they differ;
    then nothing else is compared. `unseen` counts the results between the previous row and this one that only the exported
    program has: any of them may be the cause of a difference.
    """

    result: str
    node: str
    op: str
    module: str
    source: Optional[str]
    max_abs: float
    relative: float
    snr_db: float
    shapes: Optional[tuple]
    unseen: int


class ComparedOutput(NamedTuple):
    """The difference of an output between the exported and the compiled program, with the fields of `rushlight.ComparisonRow`.

    `name` is that of the exported function's output, or its position.
    """

    name: str
    max_abs: float
    relative: float
    snr_db: float
    shapes: Optional[tuple]


class Rows(list):
    """The rows of a comparison. They print as a table."""

    def table(self):
        """Returns the rows as a table of text."""
        header = ("result", "operator", "max abs", "relative", "snr", "module", "source")
        return Table([header, *map(_cells, self)], right=(2, 3, 4))

    def __repr__(self):
        return str(self.table())

    def _repr_html_(self):
        return self.table().html()


@printable_with_repr
class Comparison:
    """The comparison of two programs. `rows` has the results that both programs have, in the order of the exported program, and
    `outputs` the tensors that the method returns. `only_in_reference` has the names of the results that the compiled program
    folded, fused or delegated, and that cannot be compared.
    """

    __slots__ = ("only_in_reference", "outputs", "rows")

    def __init__(self, rows, outputs, only_in_reference):
        self.rows = Rows(rows)
        self.outputs = list(outputs)
        self.only_in_reference = only_in_reference

    def worst(self, count=5):
        """Returns the rows with the largest relative differences, the worst first."""
        return Rows(sorted(self.rows, key=lambda row: -row.relative)[:count])

    def first_difference(self, tolerance=1e-4):
        """Returns the first row that differs by more than `tolerance` of its scale; None if none does."""
        return next((row for row in self.rows if row.relative > tolerance), None)

    def parting(self, tolerance=1e-4):
        """Describes the first difference of more than `tolerance` of the scale in a sentence. It is at a row, or, if results between
        that row and the one before are only in the exported program, between the two. None if no row differs.
        """
        at = next((at for at, row in enumerate(self.rows) if row.relative > tolerance), None)
        if at is None:
            return None
        row = self.rows[at]
        where = f"{row.result} ({row.op}), relative {row.relative:.2e}: {row.source or f'node {row.node}'}"
        if not row.unseen:
            return f"results diverge at {where}"
        start = f"{self.rows[at - 1].result}, which agrees," if at else "the inputs"
        results = "result in between is" if row.unseen == 1 else f"{row.unseen} results in between are"
        return f"results diverge between {start} and {where}; the {results} fused and cannot be compared"

    def _parts(self):
        only = f"{len(self.only_in_reference)} only in the exported program, folded, fused or delegated"
        compared = f"{count(len(self.rows), 'result')} compared; {only}"
        parting = self.parting()
        if parting is None and all(output.relative <= 1e-4 for output in self.outputs):
            parting = "no result differs by more than 1e-04 of its scale"
        header = ("output", "max abs", "relative", "snr")
        outputs = Table([header, *((output.name, *_distance(output)) for output in self.outputs)], right=(1, 2, 3))
        return [outputs, "", self.worst(5).table(), "", compared, *([parting] if parting else [])]


def compare(reference, candidate, inputs=None, *, method="forward", seed=None, progress=None):
    """Runs an exported model and its compiled program, and compares them node by node.

    `reference` is the source of one method for `rushlight.compile`: a .pt2 file (a path, or its bytes) or a
    `torch.export.ExportedProgram`. All of its nodes run on the reference operators. `candidate` is the compiled program: the path
    or bytes of a .pte, or a `rushlight.Program`. `inputs` are the inputs of the method: a tuple or list, a dict by name, or a
    single one. By default they are the example inputs of the export. They are random with the declared shapes if `seed` is given,
    if the export has no example inputs, or if one is constant, such as `torch.zeros`. `progress` is as for `rushlight.compile`.

    Raises rushlight.Error if a program cannot be loaded or run, and ValueError if the .pte has no debug map.
    """
    if isinstance(candidate, Program):
        candidate = candidate.buffer
    elif not isinstance(candidate, (str, os.PathLike)):
        candidate = memoryview(candidate)
    followed = Progress(progress)
    reference = bytes_or_path(method, reference, followed)
    if inputs is not None:
        inputs = list(of_exported(method, reference).arguments(inputs))
    with followed:
        compared = _rushlight.compare(reference, candidate, method, inputs, seed, followed.report)
    rows, outputs, only_in_reference = compared
    outputs = [ComparedOutput(**output) for output in outputs]
    return Comparison([ComparisonRow(**row) for row in rows], outputs, only_in_reference)


def _cells(row):
    # Without the folders of the file.
    place, _, code = (row.source or "").partition(" in ")
    source = os.path.basename(place) + (f" in {code}" if code else "")
    return row.result, row.op, *_distance(row), row.module, source


def _distance(row):
    difference = f"{row.max_abs:.2e}" if row.shapes is None else f"{row.shapes[0]} or {row.shapes[1]}"
    return difference, f"{row.relative:.2e}", f"{row.snr_db:.1f} dB"
