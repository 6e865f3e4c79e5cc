"""Backends that are written in Python: what they are shown, what they claim and compile, and how they run it."""

import json
from collections.abc import Mapping
from typing import NamedTuple, Optional, Protocol, Union

from . import _rushlight


class SymInt(NamedTuple):
    """A size that is known only when the program runs: its expression, and the bounds that are known."""

    expr: str
    min: Optional[int]
    max: Optional[int]

    def __str__(self):
        return self.expr


class Value(NamedTuple):
    """A value of a graph. `id` tells the values of one graph apart, names may occur twice.

    A tensor has PyTorch's name of its dtype, such as "float32", a shape of ints and `SymInt`s, and a dim order: its
    dimensions from the outermost in memory to the innermost. All tensors are row-major but inputs and outputs that the
    model has in another order, which nodes of their own reorder.
    A number has the dtype "int", "float" or "bool", and no shape.
    `producer` is the id of the node that computes the value, None for inputs, constants and states. `state` is the name of
    the state whose content at the beginning of a call it is.
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
        """Whether it is a tensor whose sizes are all known."""
        return self.shape is not None and all(isinstance(size, int) for size in self.shape)

    def __str__(self):
        shape = "" if self.shape is None else f"[{', '.join(map(str, self.shape))}]"
        return f"{self.name}: {self.dtype}{shape}"


class Metadata:
    """What PyTorch recorded of a node of an exported program. Each property is parsed when it is asked for."""

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
        """The dict `node.meta["custom"]` in which authors of models and quantizers keep their own data."""
        return json.loads(self._texts[3]) if self._texts[3] else {}

    @property
    def from_node(self):
        """The passes that made the node, and the nodes that they made it from, as PyTorch serializes them."""
        return json.loads(self._texts[4]) if self._texts[4] else []

    def __repr__(self):
        return f"Metadata(nn_module_stack={self.nn_module_stack!r}, custom={self.custom!r})"


def _entries(text, count):
    """The entries of a stack, each a tuple of `count` texts. The last text may have commas."""
    entries = (entry.split(",", count - 1) for entry in text.split(";") if entry)
    return [tuple(entry) for entry in entries if len(entry) == count]


class Node(NamedTuple):
    """A call of an operator.

    `name` is the node of the exported program, of which several nodes may have been made; `op` the operator's full name,
    such as "aten::add.Tensor"; `args` its arguments by the names of the schema, defaults filled in: `Value`s, numbers,
    strs (dtypes by PyTorch's name), None, and lists of these. `inputs` are the `Value`s among them, in order.
    `module` is the path of the module that was called, `source` the line of Python, if known.
    `id` tells the nodes of a method apart, and is the same in `Method` and `Part`. `users` are the ids of the nodes that use
    an output, in order; `is_returned` says whether the method uses one: it returns it, or stores it in a state.
    `debug_handle`, in a part, is the index of the node in the list that the program's debug map has for the part; None for
    copies. `metadata` is what PyTorch recorded, if the backend has `reads_metadata = True`.
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
    is_returned: bool
    debug_handle: Optional[int]
    metadata: Optional[Metadata]

    def __str__(self):
        return f"{self.op}({', '.join(map(str, self.inputs))}) -> {', '.join(map(str, self.outputs))}"


class Constants(Mapping):
    """The constants of a method or a part by their `Value`. Each is read when it is asked for, as a `rushlight.Tensor`.

    `numpy.asarray` of it needs no copy, and neither does the reading, if the model has the elements in row-major order.
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

    `value` is the content when a call begins, None if the graph does not read it; `update` what the graph stores at the end,
    None if it stores nothing. `initial` is the content before the first call.
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
    """A method in its canonical form, as every backend is shown it.

    `nodes` are the calls of operators in the order of computation, also those in the blocks of control flow; `inputs` and
    `outputs` are `Value`s, numbers, strs and None. `states` are the `State`s that the method reads or updates. `symbols` are
    the `SymInt`s in its sizes, with their bounds. `constants` has the constants by their `Value`.
    """

    __slots__ = (
        "_by_id", "_claimed", "_constant", "_users", "constants", "inputs", "name", "nodes", "outputs", "states", "symbols",
    )  # fmt: skip

    def __init__(self, name, shown, claimed, constant):
        self.name = name
        self.inputs, self.outputs, self.nodes, constants, self.states, self.symbols = shown
        self.constants = Constants(*constants)
        self._claimed, self._constant = frozenset(claimed), frozenset(constant)
        self._by_id = {node.id: node for node in self.nodes}
        self._users = None

    def node(self, id):
        """The node with an id."""
        return self._by_id[id]

    def producer(self, value):
        """The node that computes a value; None for inputs, constants, states and results of control flow."""
        return self._by_id.get(value.producer)

    def users(self, value):
        """The nodes that use a value, in order. `Node.is_returned` tells of the method's own uses."""
        if self._users is None:
            self._users = {}
            for node in self.nodes:
                for used in {value.id: None for value in node.inputs}:
                    self._users.setdefault(used, []).append(node)
        return list(self._users.get(value.id, ()))

    def is_claimed(self, node):
        """Whether a backend before this one took a node."""
        return node.id in self._claimed

    def is_constant(self, node):
        """Whether a node is computed from constants alone, and is deterministic."""
        return node.id in self._constant

    def __str__(self):
        return "\n".join(map(str, self.nodes))

    def __repr__(self):
        return f"Method({self.name}: {len(self.nodes)} nodes)"


class Claims:
    """The claims of a backend on the nodes of a method. A node that nothing is said of is refused.

    Nodes are `Node`s or their ids, one or an iterable of them. The last claim on a node counts.
    """

    __slots__ = ("_claims", "_method", "_options", "_tags")

    def __init__(self, method):
        self._method = method
        self._claims, self._tags, self._options = {}, {}, {}

    def take(self, nodes, tag=""):
        """The backend computes the nodes.

        Nodes with different tags are never in one part; those with one tag are in as few parts as the order of computation
        allows.
        """
        self._set(nodes, "take", tag)

    def inner(self, nodes, tag=""):
        """The backend computes the nodes as steps of their users, and takes all of these under the same tag.

        A node joins the part of its users, also where it could run in an earlier part.
        """
        self._set(nodes, "inner", tag)

    def copy(self, nodes):
        """Each part of the backend that uses the nodes gets a copy of them. The originals stay for other users.

        Examples are dequantized weights, and inner nodes of a pattern that other nodes use as well.
        """
        self._set(nodes, "copy", "")

    def decompose(self, nodes):
        """Shows the backend the simpler operators of composites, such as attention. A node that is no composite is refused.

        The backend is asked again, before backends of lower priority are shown the composites.
        """
        self._set(nodes, "decompose", "")

    def refuse(self, nodes, reason):
        """The backend does not compute the nodes. The reason is for the report."""
        if not isinstance(reason, str):
            raise TypeError(f"the reason of a refusal must be a str, got {_described(reason)}")
        self._set(nodes, "refuse", "", reason)

    def set_options(self, options, tag=""):
        """Sets declared options for the parts of a tag, in place of those of the compilation: see `Part.options`."""
        _check_tag(tag)
        self._options.setdefault(tag, {}).update(_given(options))

    def _set(self, nodes, kind, tag, reason=""):
        _check_tag(tag)
        for node in [nodes] if isinstance(nodes, (Node, int)) else nodes:
            if isinstance(node, bool) or not isinstance(node, (Node, int)):
                raise TypeError(f"expected a Node or its id, got {_described(node)}")
            id = node.id if isinstance(node, Node) else node
            if id not in self._method._by_id:
                raise ValueError(f"the method `{self._method.name}` has no node with the id {id}")
            self._claims[id] = kind, reason
            self._tags[id] = tag

    def _plain(self):
        """The claims as the extension module takes them."""
        return {
            "claims": [(id, kind, reason) for id, (kind, reason) in self._claims.items()],
            "tags": [(id, tag) for id, tag in self._tags.items() if tag],
            "options": [(tag, *option) for tag, options in self._options.items() for option in options.items()],
        }


def _check_tag(tag):
    if not isinstance(tag, str):
        raise TypeError(f"a tag must be a str, got {_described(tag)}")


class Part(NamedTuple):
    """A part of a method that a backend took.

    The delegate's `execute` gets the `inputs` in this order, and returns the `outputs` in theirs. The nodes stand in the
    order of computation, copies of `Claims.copy` among them, and have the ids of the method's nodes. `str()` gives the graph as
    text. `states` are the states that belong to the backend (`owns_state`): they are neither inputs nor outputs. `options`
    are all declared options with their values for the `tag` of the part's nodes.
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


class Payload(NamedTuple):
    """What a backend made of a part, and what its other half is given.

    `named_data` are blobs that parts and methods may share: equal keys must have equal bytes.
    """

    data: bytes
    compile_specs: Mapping[str, bytes] = {}
    named_data: Mapping[str, bytes] = {}


class OptionSpec(NamedTuple):
    """An option that a backend has.

    The type of `default`, a bool, an int or a str, is the type of its values; `about` is one line of documentation. An option
    with `choices` takes one of these strs.
    """

    name: str
    default: Union[bool, int, str]
    about: str
    choices: tuple = ()


class BackendInfo(NamedTuple):
    """A backend that comes with Rushlight, with the options that it has when a model is compiled."""

    name: str
    about: str
    options: list


def backends():
    """The backends that come with Rushlight, as `BackendInfo`s."""
    return [
        BackendInfo(name, about, [OptionSpec(*spec, tuple(choices)) for *spec, choices in options])
        for name, about, options in _rushlight.backends()
    ]


class MethodBackend(Protocol):
    """The ahead-of-time half of a backend, which claims nodes of whole methods. Any object with these members will do.

    With `reads_metadata = True` the nodes have their `metadata`. With `owns_state(state) -> bool` the backend may keep states
    of the model: a `State` that a single part reads and updates, and for which the answer is True, becomes a state of this part.
    A backend may have `options`, a sequence of `OptionSpec`s, and then has `set_option(name, value)`, which is called for each
    of them before anything is compiled, with what the user gave or the default: `backend=(Npu(), {"mode": "exact"})`.
    What these functions raise becomes the `__cause__` of the `rushlight.Error` that the compilation raises.
    """

    name: str
    """The name by which a program finds the backend's other half."""

    def claim(self, method: Method, claims: Claims) -> None:
        """Claims nodes of a method, patterns of several nodes too. `method.is_claimed` tells of backends before this one."""
        ...

    def compile(self, part: Part) -> Union[bytes, Payload]:
        """Compiles a part: as many nodes of one tag as the order of computation lets run together."""
        ...


class Backend(Protocol):
    """As `MethodBackend`, for backends that claim one node at a time. The other members may be there, too."""

    name: str
    """The name by which a program finds the backend's other half."""

    def partition(self, node: Node) -> Union[bool, str]:
        """Whether the backend takes a node: True, False, or the reason why not.

        Nodes come in the order of computation, and those that a backend before this one took do not come. Composite
        operators, such as "aten::scaled_dot_product_attention" and "aten::linear", are offered whole. If no backend takes
        them, all nodes are offered again with simpler operators in their place.
        """
        ...

    def preprocess(self, part: Part) -> Union[bytes, Payload]:
        """Compiles a part: as many nodes that the backend took as the order of computation lets run together."""
        ...


def register_backend(backend):
    """Makes `backend` what runs the delegates of its name, in methods that are loaded from now on.

    `backend.name` is the name in the programs. `backend.init(payload)` prepares what `preprocess` made of one part, as a
    `rushlight.Payload`, and returns a delegate: an object with `num_outputs`, the number of outputs of the part, and
    `execute(inputs)`. The inputs are tensors as `rushlight.Tensor` (copies; `numpy.asarray` and `torch.from_dlpack` take
    them without another) and numbers. It returns the output, or a list or tuple of the outputs, as tensors or arrays of
    the dtypes of the part's; they are copied to the program's memory. `payload.named_data` has all blobs of the program.
    A delegate that keeps states has `states`, a dict of names to their first bytes, and `execute(inputs, states)`. It gets a
    dict of names to bytearrays, which it changes in place and keeps no longer than the call. Delegates of one program that
    name the same state share it.

    For trying a backend out, before its run-time half is written in Rust: every call copies and takes the interpreter's
    lock. To register a name again replaces it in programs that are loaded later; a program keeps the one that it found.
    What the backend raises becomes the `__cause__` of the `rushlight.Error` that loading or calling the program raises.
    """
    name = _name(backend)
    init = getattr(backend, "init", None)
    if not callable(init):
        raise TypeError(f"the backend `{name}` cannot run anything: it has no method init(payload)")

    def prepare(method, data, compile_specs, named_data):
        delegate = init(Payload(data, dict(compile_specs), named_data))
        for needed in ("num_outputs", "execute"):
            if not hasattr(delegate, needed):
                raise TypeError(
                    f"the backend `{name}` returned a {type(delegate).__name__} from init, which has no `{needed}`: "
                    "expected an object with `num_outputs` and `execute(inputs)`"
                )
        states = _blobs("states", getattr(delegate, "states", {}))
        outputs = delegate.num_outputs
        if not _is_int(outputs) or outputs < 0:
            raise TypeError(f"`num_outputs` of a delegate of `{name}` must be an int of at least 0, got {outputs!r}")

        def execute(inputs, contents):
            results = delegate.execute(inputs, contents) if states else delegate.execute(inputs)
            results = list(results) if isinstance(results, (list, tuple)) else [results]
            if len(results) != outputs:
                raise ValueError(f"a delegate of `{name}` returned {len(results)} results, expected {outputs}")
            return results

        return outputs, states, execute

    _rushlight.register_backend(name, prepare)


# The functions of a backend that claim nodes and compile parts.
_FUNCTIONS = "claim", "partition", "compile", "preprocess"


class Adapter:
    """A user's backend as the extension module calls it: checks what comes back, and makes the objects it is shown."""

    # Called by the extension module.
    size = SymInt
    method = Method

    def __init__(self, backend, options):
        self.name = _name(backend)
        has = [name for name in _FUNCTIONS if callable(getattr(backend, name, None))]
        claim = next((name for name in ("claim", "partition") if name in has), None)
        compile = next((name for name in ("compile", "preprocess") if name in has), None)
        if claim is None or compile is None:
            needed = "`partition` and no `claim`" if claim is None else "`preprocess` and no `compile`"
            raise TypeError(
                f"the backend `{self.name}` ({type(backend).__name__}) has no method {needed}: expected `name`, "
                "`claim(method, claims)` and `compile(part)`, or `partition(node)` and `preprocess(part)`"
            )
        self.functions = claim, compile
        self.reads_metadata = bool(getattr(backend, "reads_metadata", False))
        # The id of the node that `partition` is asked for, which the extension module names in an error.
        self.asked = None
        self._backend = backend
        self._options = {}
        self.options = _declared(self.name, getattr(backend, "options", ()))
        if self.options and not callable(getattr(backend, "set_option", None)):
            raise TypeError(f"the backend `{self.name}` has options, and no method `set_option(name, value)`")
        _rushlight.set_options(self, _given(options))

    def set_option(self, name, value):
        self._options[name] = value
        self._backend.set_option(name, value)

    def value(self, name, type, is_constant, id, producer, state):
        return Value(name, *type, is_constant, id, producer, state)

    def node(self, fields, id, users, is_returned, debug_handle, metadata):
        metadata = None if metadata is None else Metadata(*metadata)
        return Node(*fields, id, users, is_returned, debug_handle, metadata)

    def state(self, name, type, value, update, core, index):
        return State(name, *type, value, update, core, index)

    def part(self, method, shown, text, tag, options):
        inputs, outputs, nodes, constants, states, symbols = shown
        options = {**self._options, **options}
        return Part(method, inputs, outputs, nodes, Constants(*constants), text, tag, options, states, symbols)

    def claim(self, method):
        """The claims of the backend on a method, as the extension module takes them."""
        claims = Claims(method)
        if self.functions[0] == "claim":
            self._backend.claim(method, claims)
            return claims._plain()
        for node in method.nodes:
            if not method.is_claimed(node):
                self.asked = node.id
                self._partition(node, claims)
        self.asked = None
        return claims._plain()

    def _partition(self, node, claims):
        """Claims a single node."""
        answer = self._backend.partition(node)
        if answer is True:
            claims.take(node)
        elif answer is False:
            claims.refuse(node, "not supported")
        elif isinstance(answer, str):
            claims.refuse(node, answer)
        else:
            raise TypeError(f"expected True, False or a str with the reason why not, got {_described(answer)}")

    def owns_state(self, state):
        owns_state = getattr(self._backend, "owns_state", None)
        return owns_state is not None and bool(owns_state(state))

    def compile(self, part):
        payload = getattr(self._backend, self.functions[1])(part)
        if not isinstance(payload, Payload):
            payload = Payload(payload)
        data = _bytes("data", payload.data)
        return data, _blobs("compile_specs", payload.compile_specs), _blobs("named_data", payload.named_data)


def adapted(backend):
    """The argument `backend` of `compile` as a list of backends that come with Rushlight, and adapters."""
    if backend is None:
        return []
    is_list = isinstance(backend, (list, tuple)) and not _is_pair(backend)
    return [_adapted(item) for item in (backend if is_list else [backend])]


def _adapted(item):
    if isinstance(item, (_rushlight.BackendSpec, Adapter)):
        return item
    backend, options = item if _is_pair(item) else (item, {})
    if isinstance(backend, str):
        return _rushlight.BackendSpec(backend, _given(options))
    return Adapter(backend, options)


def _is_pair(item):
    """Whether it is a backend with a dict of its options."""
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Mapping)


def _given(options):
    """Options with names and values that can be options at all."""
    for name, value in options.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of an option must be a str, got {_described(name)}")
        _check_value(f"the option `{name}`", value)
    return list(options.items())


def _declared(backend, options):
    declared = []
    for option in options:
        if not isinstance(option, OptionSpec):
            raise TypeError(f"`options` of the backend `{backend}` must be OptionSpecs, got {_described(option)}")
        name, default, about, choices = option[0], option[1], option[2], tuple(option[3])
        if not isinstance(name, str) or not isinstance(about, str) or any(not isinstance(c, str) for c in choices):
            raise TypeError(f"name, about and choices of an option of the backend `{backend}` must be strs: {option}")
        _check_value(f"the default of the option `{name}`", default)
        if choices and default not in choices:
            raise ValueError(f"the default of the option `{name}` must be one of {', '.join(choices)}, got {default!r}")
        if any(name == known for known, *_ in declared):
            raise ValueError(f"the backend `{backend}` declares the option `{name}` twice")
        declared.append((name, default, about, list(choices)))
    return declared


def _check_value(what, value):
    if not isinstance(value, (bool, int, str)):
        raise TypeError(f"{what} must be a bool, an int or a str, got {_described(value)}")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{what} must fit into 64 bits, got {value}")


def _name(backend):
    name = getattr(backend, "name", None)
    if isinstance(backend, type):
        raise TypeError(f"expected a backend, got the class {backend.__name__}: make an object of it")
    if not isinstance(name, str) or not name:
        raise TypeError(
            "expected the name of a backend, or an object with `name`, `claim(method, claims)` and `compile(part)`, got "
            f"{_described(backend)} whose name is {name!r}"
        )
    return name


def _bytes(what, data):
    if isinstance(data, bytes):
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise TypeError(f"{what} must be bytes, got {_described(data)}") from None


def _blobs(what, blobs):
    if not isinstance(blobs, Mapping) or any(not isinstance(key, str) for key in blobs):
        raise TypeError(f"{what} must be a dict of strs to bytes, got {_described(blobs)}")
    return [(key, _bytes(f"{what}[{key!r}]", data)) for key, data in blobs.items()]


def _is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _described(value):
    article = "an" if type(value).__name__[0].lower() in "aeiou" else "a"
    return f"{article} {type(value).__name__}"
