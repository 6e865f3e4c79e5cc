"""Who runs the nodes of a program."""

from collections import Counter
from typing import NamedTuple, Optional

from ._text import Table, count, shown_in_full

# The nodes of a table.
_SHOWN = 20


class NodeReport(NamedTuple):
    """A node as it was offered to the backends.

    `node` is its name in the exported program, `module` the path of the module that was called, `source` the line of
    Python, if known. `backend` took it; that is "portable" for the runtime's operators, and `reasons` are then why the
    backends left it, by their names.
    """

    method: str
    node: str
    op: str
    module: str
    source: Optional[str]
    backend: str
    reasons: dict
    precision: Optional[str] = None


@shown_in_full
class LoadReport(NamedTuple):
    """How a loaded program runs.

    `nodes` says who took each node when the program was lowered; `reason` why it was not, and runs as its file has it.
    `cache` says whether the lowered program was loaded from the cache or written to it, if there is one.
    """

    reason: Optional[str]
    nodes: list
    cache: Optional[str] = None

    @property
    def lowered(self):
        """Whether the program was lowered."""
        return self.reason is None

    @property
    def backends(self):
        """How many nodes each backend took, the most first; "portable" for the runtime's operators."""
        return dict(Counter(node.backend for node in self.nodes).most_common())

    def _summary(self):
        if self.reason is not None:
            return [f"runs as its file has it: {self.reason}"]
        parts = shares(self.backends)
        return parts if self.cache is None else [*parts, f"cache: {self.cache}"]

    def _parts(self):
        return self._summary() + (left_nodes(self.nodes) if self.lowered else [])


def shares(backends):
    """For each backend, how many of all nodes it took."""
    total = count(sum(backends.values()), "node")
    return [f"{name}: {taken} of {total}" for name, taken in backends.items()]


def left_nodes(nodes):
    """Lines and a table of the nodes that the backends left, and why; nothing if they left none."""
    left = [node for node in nodes if node.reasons]
    if not left:
        return []
    rows = [
        ("  " + node.node, node.op, "; ".join(f"{name}: {why}" for name, why in node.reasons.items()))
        for node in left[:_SHOWN]
    ]
    parts = ["", f"{count(len(left), 'node')} left to the portable operators", Table([("  node", "operator", "why"), *rows])]
    if len(left) > _SHOWN:
        parts.append(f"  … and {len(left) - _SHOWN} more in report.nodes")
    return parts
