"""Backends in Python: the protocols for claiming and compiling nodes, and for running parts."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, Union

from . import _rushlight
from ._graph import Claims, Constants, Metadata, Method, Node, Part, State, SymInt, Value, check_options, check_value, type_name


class Payload(NamedTuple):
    """The result of compiling a part, which the backend's run-time half gets.

    `named_data` are blobs that parts and methods may share. Equal keys must have equal bytes.
    """

    data: bytes
    compile_specs: Mapping[str, bytes] = {}
    named_data: Mapping[str, bytes] = {}


class OptionSpec(NamedTuple):
    """An option of a backend.

    `default` is a bool, an int or a str; its type is that of all values. `about` is one line of documentation. If `choices` is
    not empty, the value is one of these strs.
    """

    name: str
    default: Union[bool, int, str]
    about: str
    choices: tuple = ()


class BackendInfo(NamedTuple):
    """A backend that comes with Rushlight, with its options for compiling."""

    name: str
    about: str
    options: list


def backends():
    """Returns the backends that come with Rushlight, as a list of `BackendInfo`."""
    return [
        BackendInfo(name, about, [OptionSpec(*spec, tuple(choices)) for *spec, choices in options])
        for name, about, options in _rushlight.backends()
    ]


class MethodBackend(Protocol):
    """The ahead-of-time half of a backend that claims nodes of whole methods. Any object with these members is one.

    With `reads_metadata = True`, the nodes have their `metadata`. With `owns_state(state) -> bool`, the backend may own states of
    the model: if a single part reads and updates a `State`, and the function returns True, it becomes a state of this part.
    A backend may have `options`, a sequence of `OptionSpec`s. It then has `set_option(name, value)`, which is called for each
    option before anything is compiled, with the user's value or the default: `backend=(Npu(), {"mode": "exact"})`.
    The exception of one of these functions becomes the `__cause__` of the `rushlight.Error` that the compilation raises.
    """

    name: str
    """The name by which a program finds the backend's other half."""

    def claim(self, method: Method, claims: Claims) -> None:
        """Claims nodes of a method. A pattern may have several nodes. `method.is_claimed` has the claims of earlier backends."""
        ...

    def compile(self, part: Part) -> Union[bytes, Payload]:
        """Compiles a part: nodes of one tag that can run together in the order of computation."""
        ...


class Backend(Protocol):
    """A backend that claims one node at a time. It may have the other members of `MethodBackend`, too."""

    name: str
    """The name by which a program finds the backend's other half."""

    def partition(self, node: Node) -> Union[bool, str]:
        """Returns True if the backend takes a node; otherwise False, or the reason.

        Nodes come in the order of computation, without those that an earlier backend took. Composite operators, such as
        "aten::scaled_dot_product_attention" and "aten::linear", come whole. If no backend takes a composite, all nodes come again,
        with simpler operators in its place.
        """
        ...

    def preprocess(self, part: Part) -> Union[bytes, Payload]:
        """Compiles a part: nodes of the backend that can run together in the order of computation."""
        ...


def register_backend(backend):
    """Registers `backend` to run the delegates with its name, in methods that are loaded after this call.

    `backend.name` is the name in the programs. `backend.init(payload)` prepares a part. It gets the result of `preprocess` as a
    `rushlight.Payload`, whose `named_data` has all blobs of the program. It returns a delegate: an object with `num_outputs`, the
    number of outputs of the part, and `execute(inputs)`.

    The inputs are numbers and tensors. A tensor is a `rushlight.Tensor` with a copy of the elements; `numpy.asarray` and
    `torch.from_dlpack` do not copy them again. `execute` returns the output, or a list or tuple of the outputs: tensors or
    arrays with the dtypes of the part. They are copied to the program's memory.

    A delegate with states has `states`, a dict of names to their first bytes, and `execute(inputs, states)`. The second argument
    is a dict of names to bytearrays. `execute` changes them in place, and must not keep them after the call. Delegates of one
    program share a state by its name.

    Use it to try a backend before its run-time half is written in Rust or C: every call copies, and holds the interpreter's
    lock. A later backend with the same name runs in programs that are loaded after it is registered. An exception of the
    backend becomes the `__cause__` of the `rushlight.Error` that loading or calling the program raises.
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


# The names of the functions of a backend for claiming nodes and compiling parts.
_FUNCTIONS = "claim", "partition", "compile", "preprocess"


class Adapter:
    """A user's backend for the extension module. Checks its results, and makes the objects that it gets."""

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
        _rushlight.set_options(self, check_options(options))

    def set_option(self, name, value):
        self._options[name] = value
        self._backend.set_option(name, value)

    def value(self, name, type, is_constant, id, producer, state):
        return Value(name, *type, is_constant, id, producer, state)

    def node(self, fields, id, users, has_other_uses, debug_handle, metadata):
        metadata = None if metadata is None else Metadata(*metadata)
        return Node(*fields, id, users, has_other_uses, debug_handle, metadata)

    def state(self, name, type, value, update, core, index):
        return State(name, *type, value, update, core, index)

    def part(self, method, graph, text, tag, options):
        inputs, outputs, nodes, constants, states, symbols = graph
        options = {**self._options, **options}
        return Part(method, inputs, outputs, nodes, Constants(*constants), text, tag, options, states, symbols)

    def claim(self, method):
        """Returns the claims of the backend on a method, in the form of the extension module."""
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
            raise TypeError(f"expected True, False or a str with the reason why not, got {type_name(answer)}")

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
    """Converts the argument `backend` of `compile` to a list of adapters and of names of backends that come with Rushlight."""
    if backend is None:
        return []
    is_list = isinstance(backend, (list, tuple)) and not _is_pair(backend)
    return [_adapted(item) for item in (backend if is_list else [backend])]


def _adapted(item):
    if isinstance(item, (_rushlight.BackendSpec, Adapter)):
        return item
    backend, options = item if _is_pair(item) else (item, {})
    if isinstance(backend, str):
        return _rushlight.BackendSpec(backend, check_options(options))
    return Adapter(backend, options)


def _is_pair(item):
    """Returns True for a pair of a backend and a dict of its options."""
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Mapping)


def _declared(backend, options):
    declared = []
    for option in options:
        if not isinstance(option, OptionSpec):
            raise TypeError(f"`options` of the backend `{backend}` must be OptionSpecs, got {type_name(option)}")
        name, default, about, choices = option[0], option[1], option[2], tuple(option[3])
        if not isinstance(name, str) or not isinstance(about, str) or any(not isinstance(c, str) for c in choices):
            raise TypeError(f"name, about and choices of an option of the backend `{backend}` must be strs: {option}")
        check_value(f"the default of the option `{name}`", default)
        if choices and default not in choices:
            raise ValueError(f"the default of the option `{name}` must be one of {', '.join(choices)}, got {default!r}")
        if any(name == known for known, *_ in declared):
            raise ValueError(f"the backend `{backend}` declares the option `{name}` twice")
        declared.append((name, default, about, list(choices)))
    return declared


def _name(backend):
    name = getattr(backend, "name", None)
    if isinstance(backend, type):
        raise TypeError(f"expected a backend, got the class {backend.__name__}: make an object of it")
    if not isinstance(name, str) or not name:
        raise TypeError(
            "expected the name of a backend, or an object with `name`, `claim(method, claims)` and `compile(part)`, got "
            f"{type_name(backend)} whose name is {name!r}"
        )
    return name


def _bytes(what, data):
    if isinstance(data, bytes):
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise TypeError(f"{what} must be bytes, got {type_name(data)}") from None


def _blobs(what, blobs):
    if not isinstance(blobs, Mapping) or any(not isinstance(key, str) for key in blobs):
        raise TypeError(f"{what} must be a dict of strs to bytes, got {type_name(blobs)}")
    return [(key, _bytes(f"{what}[{key!r}]", data)) for key, data in blobs.items()]


def _is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)
