"""Methods and parts for backends, and the claims of backends on nodes."""

import json
from collections.abc import Mapping
from typing import NamedTuple, Optional, Union


class SymInt(NamedTuple):
    """A size that is known only when the program runs: its expression and its bounds."""

    expr: str
    min: Optional[int]
    max: Optional[int]

    def __str__(self):
        return self.expr


class Value(NamedTuple):
    """A value of a graph. `id` is unique in a graph; names are not.

    A tensor has the name of its dtype in PyTorch, such as "float32", a shape of ints and `SymInt`s, and a dim order: its
    dimensions in memory, from the outermost to the innermost. All tensors are row-major, except for inputs and outputs with
    another order in the model; separate nodes reorder these.
    A number has the dtype "int", "float" or "bool", and no shape.
    `producer` is the id of the node that computes the value; None for inputs, constants and states. `state` is the name of a
    state if the value is its content at the beginning of a call.
    """

    name: str
    dtype: str
    shape: Optional[tuple]
    dim_order: Optional[tuple]
    is_constant: bool
    id: int
    producer: Optional[int] = None
    state: Optional[str] = None

    @property
    def is_static(self):
        """True for a tensor with only static sizes."""
        return self.shape is not None and all(isinstance(size, int) for size in self.shape)

    def __str__(self):
        shape = "" if self.shape is None else f"[{', '.join(map(str, self.shape))}]"
        return f"{self.name}: {self.dtype}{shape}"


class Metadata:
    """The metadata of an exported node from PyTorch. Each property is parsed when it is read."""

    __slots__ = ("_texts",)

    def __init__(self, *texts):
        self._texts = texts

    @property
    def nn_module_stack(self):
        """The modules around the node, the outermost first, as tuples of key, path and class."""
        return _entries(self._texts[0], 3)

    @property
    def source_fn_stack(self):
        """The functions and modules that the node was traced from, the outermost first, as tuples of name and target."""
        return _entries(self._texts[1], 2)

    @property
    def torch_fn(self):
        """The name and the function of PyTorch that made the node, as a tuple; None if unknown."""
        entries = self._texts[2].split(";")
        return tuple(entries) if len(entries) == 2 else None

    @property
    def custom(self):
        """The dict `node.meta["custom"]`, where authors of models and quantizers store their own data."""
        return json.loads(self._texts[3]) if self._texts[3] else {}

    @property
    def from_node(self):
        """The passes that made the node, and the nodes before each, in the form that PyTorch serializes."""
        return json.loads(self._texts[4]) if self._texts[4] else []

    def __repr__(self):
        return f"Metadata(nn_module_stack={self.nn_module_stack!r}, custom={self.custom!r})"


def _entries(text, count):
    """The entries of a stack, each a tuple of `count` texts. The last text may have commas."""
    entries = (entry.split(",", count - 1) for entry in text.split(";") if entry)
    return [tuple(entry) for entry in entries if len(entry) == count]


class Node(NamedTuple):
    """A call of an operator.

    `name` is the node of the exported program; several nodes may come from one. `op` is the full name of the operator, such as
    "aten::add.Tensor". `args` are its arguments by the names of the schema, with defaults: `Value`s, numbers, strs (also for
    dtypes), None, and lists of these. `inputs` are the `Value`s among them, in order. `module` is the path of the called
    module, `source` the line of Python, if known.
    `id` is unique in a method, and the same in `Method` and `Part`. `users` are the ids of the nodes that use an output, in
    order. `has_other_uses` is True if anything else uses an output: the method returns it or stores it in a state, or control
    flow reads it.
    `debug_handle`, in a part, is the index of the node in the part's list in the debug map; None for copies. `metadata` is the
    metadata from PyTorch, if the backend has `reads_metadata = True`.
    """

    name: str
    op: str
    args: dict
    inputs: list
    outputs: list
    module: str
    source: Optional[str]
    id: int
    users: list
    has_other_uses: bool
    debug_handle: Optional[int]
    metadata: Optional[Metadata]

    def __str__(self):
        return f"{self.op}({', '.join(map(str, self.inputs))}) -> {', '.join(map(str, self.outputs))}"


class Constants(Mapping):
    """The constants of a method or a part, by their `Value`. Each is read when it is looked up, as a `rushlight.Tensor`.

    If the elements are row-major in the model, neither the lookup nor `numpy.asarray` copies them.
    """

    __slots__ = ("_core", "_indices")

    def __init__(self, values, core):
        self._indices = {value: index for index, value in enumerate(values)}
        self._core = core

    def __getitem__(self, value):
        return self._core.read(self._indices[value])

    def __iter__(self):
        return iter(self._indices)

    def __len__(self):
        return len(self._indices)

    def __repr__(self):
        return f"Constants({', '.join(map(str, self))})"


class State:
    """A tensor that keeps its content between calls, such as a KV cache.

    `value` is the content at the beginning of a call; None if the graph does not read it. `update` is the content that the graph
    stores at the end; None if it stores nothing. `initial` is the content before the first call.
    """

    __slots__ = ("_core", "_index", "dim_order", "dtype", "name", "shape", "update", "value")

    def __init__(self, name, dtype, shape, dim_order, value, update, core, index):
        self.name, self.dtype, self.shape, self.dim_order = name, dtype, shape, dim_order
        self.value, self.update = value, update
        self._core, self._index = core, index

    @property
    def initial(self):
        return self._core.read(self._index)

    def __repr__(self):
        return f"State({self.name}: {self.dtype}[{', '.join(map(str, self.shape))}])"


class Method:
    """A method in the canonical form, which is the same for all backends.

    `nodes` are the calls of operators in the order of computation, including those in the blocks of control flow. `inputs` and
    `outputs` are `Value`s, numbers, strs and None. `states` are the `State`s that the method reads or updates. `symbols` are
    the `SymInt`s in its sizes, with their bounds. `constants` has the constants by their `Value`.
    """

    __slots__ = (
        "_by_id", "_claimed", "_constant", "_users", "constants", "inputs", "name", "nodes", "outputs", "states", "symbols",
    )  # fmt: skip

    def __init__(self, name, graph, claimed, constant):
        self.name = name
        self.inputs, self.outputs, self.nodes, constants, self.states, self.symbols = graph
        self.constants = Constants(*constants)
        self._claimed, self._constant = frozenset(claimed), frozenset(constant)
        self._by_id = {node.id: node for node in self.nodes}
        self._users = None

    def node(self, id):
        """Returns the node with an id."""
        return self._by_id[id]

    def producer(self, value):
        """Returns the node that computes a value; None for inputs, constants, states and results of control flow."""
        return self._by_id.get(value.producer)

    def users(self, value):
        """Returns the nodes that use a value, in order. `Node.has_other_uses` is for other uses."""
        if self._users is None:
            self._users = {}
            for node in self.nodes:
                for used in {value.id: None for value in node.inputs}:
                    self._users.setdefault(used, []).append(node)
        return list(self._users.get(value.id, ()))

    def is_claimed(self, node):
        """Returns True if an earlier backend took a node."""
        return node.id in self._claimed

    def is_constant(self, node):
        """Returns True if a node is deterministic and computed from constants alone."""
        return node.id in self._constant

    def __str__(self):
        return "\n".join(map(str, self.nodes))

    def __repr__(self):
        return f"Method({self.name}: {len(self.nodes)} nodes)"


class Claims:
    """The claims of a backend on the nodes of a method. A node without a claim is refused.

    Nodes are `Node`s or their ids: one, or an iterable of them. The last claim on a node counts.
    """

    __slots__ = ("_claims", "_method", "_options", "_tags")

    def __init__(self, method):
        self._method = method
        self._claims, self._tags, self._options = {}, {}, {}

    def take(self, nodes, tag=""):
        """The backend computes the nodes.

        Nodes with different tags are never in one part. Nodes with one tag are in as few parts as the order of computation allows.
        """
        self._set(nodes, "take", tag)

    def inner(self, nodes, tag=""):
        """The backend computes the nodes as steps of their users, which it must take under the same tag.

        A node joins the part of its users, even if it could run in an earlier part.
        """
        self._set(nodes, "inner", tag)

    def copy(self, nodes):
        """Each part of the backend that uses the nodes gets a copy of them. The originals stay for other users.

        Examples are dequantized weights, and inner nodes of a pattern that other nodes use as well.
        """
        self._set(nodes, "copy", "")

    def decompose(self, nodes):
        """Asks for the simpler operators of composites, such as attention. A node that is not a composite is refused.

        The backend's `claim` is called again, before backends of lower priority get the composites.
        """
        self._set(nodes, "decompose", "")

    def refuse(self, nodes, reason):
        """The backend does not compute the nodes. The report has the reason."""
        if not isinstance(reason, str):
            raise TypeError(f"the reason of a refusal must be a str, got {type_name(reason)}")
        self._set(nodes, "refuse", "", reason)

    def set_options(self, options, tag=""):
        """Sets declared options for the parts of a tag, instead of those of the compilation: see `Part.options`."""
        _check_tag(tag)
        self._options.setdefault(tag, {}).update(check_options(options))

    def _set(self, nodes, kind, tag, reason=""):
        _check_tag(tag)
        for node in [nodes] if isinstance(nodes, (Node, int)) else nodes:
            if isinstance(node, bool) or not isinstance(node, (Node, int)):
                raise TypeError(f"expected a Node or its id, got {type_name(node)}")
            id = node.id if isinstance(node, Node) else node
            if id not in self._method._by_id:
                raise ValueError(f"the method `{self._method.name}` has no node with the id {id}")
            self._claims[id] = kind, reason
            self._tags[id] = tag

    def _plain(self):
        """Returns the claims in the form of the extension module."""
        return {
            "claims": [(id, kind, reason) for id, (kind, reason) in self._claims.items()],
            "tags": [(id, tag) for id, tag in self._tags.items() if tag],
            "options": [(tag, *option) for tag, options in self._options.items() for option in options.items()],
        }


def _check_tag(tag):
    if not isinstance(tag, str):
        raise TypeError(f"a tag must be a str, got {type_name(tag)}")


class Part(NamedTuple):
    """A part of a method that a backend took.

    The delegate's `execute` gets the `inputs` and returns the `outputs`, each in this order. The nodes are in the order of
    computation, with the ids of the method's nodes, and include copies of `Claims.copy`. `str()` returns the graph as text.
    `states` are the states that the backend owns (`owns_state`); they are neither inputs nor outputs. `options` are all declared
    options with their values for the `tag` of the part's nodes.
    """

    method: str
    inputs: list
    outputs: list
    nodes: list
    constants: Constants
    text: str
    tag: str
    options: Mapping[str, Union[bool, int, str]]
    states: list
    symbols: list

    def __str__(self):
        return self.text


def check_options(options):
    """Checks the names and the types of options, and returns them."""
    for name, value in options.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of an option must be a str, got {type_name(name)}")
        check_value(f"the option `{name}`", value)
    return list(options.items())


def check_value(what, value):
    if not isinstance(value, (bool, int, str)):
        raise TypeError(f"{what} must be a bool, an int or a str, got {type_name(value)}")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{what} must fit into 64 bits, got {value}")


def type_name(value):
    article = "an" if type(value).__name__[0].lower() in "aeiou" else "a"
    return f"{article} {type(value).__name__}"
