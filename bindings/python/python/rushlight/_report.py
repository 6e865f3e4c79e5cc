"""Who runs the nodes of a program."""

from collections import Counter
from typing import NamedTuple, Optional


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
