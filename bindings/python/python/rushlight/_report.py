"""The backends of the nodes of a loaded program."""

from collections import Counter
from typing import NamedTuple, Optional

from ._text import Table, count, printable_with_repr

# Maximum nodes in a table.
_MAX_ROWS = 20


class NodeReport(NamedTuple):
    """A node for which backends were asked.

    `node` is its name in the exported program, `module` the path of the called module, `source` the line of Python, if known.
    `backend` computes it: "portable" for the runtime's operators. Then `reasons` are the refusals of the backends, by name.
    """

    method: str
    node: str
    op: str
    module: str
    source: Optional[str]
    backend: str
    reasons: dict
    precision: Optional[str] = None


@printable_with_repr
class LoadReport(NamedTuple):
    """The way in which a loaded program runs.

    `nodes` has the backend of each node if the program was lowered. `reason` is the reason why it was not; it then runs as it is
    in the file. `cache` says if the lowered program was loaded from the cache or written to it; None without a cache.
    """

    reason: Optional[str]
    nodes: list
    cache: Optional[str] = None

    @property
    def lowered(self):
        """True if the program was lowered."""
        return self.reason is None

    @property
    def backends(self):
        """The number of nodes of each backend, the largest first; "portable" is the runtime's operators."""
        return dict(Counter(node.backend for node in self.nodes).most_common())

    def _summary(self):
        if self.reason is not None:
            return [f"runs as its file has it: {self.reason}"]
        parts = shares(self.backends)
        return parts if self.cache is None else [*parts, f"cache: {self.cache}"]

    def _parts(self):
        return self._summary() + (left_nodes(self.nodes) if self.lowered else [])


def shares(backends):
    """Formats the number of nodes of each backend, a line each."""
    total = count(sum(backends.values()), "node")
    return [f"{name}: {taken} of {total}" for name, taken in backends.items()]


def left_nodes(nodes):
    """Returns lines and a table of the nodes that the backends refused, with the reasons; nothing without such nodes."""
    left = [node for node in nodes if node.reasons]
    if not left:
        return []
    rows = [
        ("  " + node.node, node.op, "; ".join(f"{name}: {why}" for name, why in node.reasons.items()))
        for node in left[:_MAX_ROWS]
    ]
    parts = ["", f"{count(len(left), 'node')} left to the portable operators", Table([("  node", "operator", "why"), *rows])]
    if len(left) > _MAX_ROWS:
        parts.append(f"  … and {len(left) - _MAX_ROWS} more in report.nodes")
    return parts
