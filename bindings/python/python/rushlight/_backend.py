"""Backends that are written in Python: what they claim and compile, and how they run it."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, Union

from . import _rushlight
from ._graph import Claims, Constants, Metadata, Method, Node, Part, State, SymInt, Value, check_value, described, given


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
    A backend may have `options`, a sequence of `OptionSpec`s. It then has `set_option(name, value)`, which is called for each
    option before anything is compiled, with the user's value or the default: `backend=(Npu(), {"mode": "exact"})`.
    An exception of these functions becomes the `__cause__` of the `rushlight.Error` that the compilation raises.
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
        """Returns True if the backend takes a node; otherwise False, or the reason.

        Nodes come in the order of computation, and those that a backend before this one took do not come. Composite
        operators, such as "aten::scaled_dot_product_attention" and "aten::linear", are offered whole. If no backend takes
        them, all nodes are offered again with simpler operators in their place.
        """
        ...

    def preprocess(self, part: Part) -> Union[bytes, Payload]:
        """Compiles a part: as many nodes that the backend took as the order of computation lets run together."""
        ...


def register_backend(backend):
    """Makes `backend` run the delegates of its name, in methods that are loaded from now on.

    `backend.name` is the name in the programs. `backend.init(payload)` prepares what `preprocess` made of one part, as a
    `rushlight.Payload`, and returns a delegate: an object with `num_outputs`, the number of outputs of the part, and
    `execute(inputs)`. The inputs are tensors as `rushlight.Tensor` (copies; `numpy.asarray` and `torch.from_dlpack` take
    them without another) and numbers. It returns the output, or a list or tuple of the outputs, as tensors or arrays of
    the dtypes of the part's; they are copied to the program's memory. `payload.named_data` has all blobs of the program.
    A delegate that keeps states has `states`, a dict of names to their first bytes, and `execute(inputs, states)`. It gets a
    dict of names to bytearrays, which it changes in place and keeps no longer than the call. Delegates of one program that
    name the same state share it.

    Use it to try a backend out, before its run-time half is written in Rust or C: every call copies and takes the
    interpreter's lock. A later backend of the same name runs in programs that are loaded after it is registered.
    An exception of the backend becomes the `__cause__` of the `rushlight.Error` that loading or calling the program raises.
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
    """A user's backend as the extension module calls it. It checks results, and makes the objects that the backend is shown."""

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
        _rushlight.set_options(self, given(options))

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
            raise TypeError(f"expected True, False or a str with the reason why not, got {described(answer)}")

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
        return _rushlight.BackendSpec(backend, given(options))
    return Adapter(backend, options)


def _is_pair(item):
    """Whether it is a backend with a dict of its options."""
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Mapping)


def _declared(backend, options):
    declared = []
    for option in options:
        if not isinstance(option, OptionSpec):
            raise TypeError(f"`options` of the backend `{backend}` must be OptionSpecs, got {described(option)}")
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
            f"{described(backend)} whose name is {name!r}"
        )
    return name


def _bytes(what, data):
    if isinstance(data, bytes):
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise TypeError(f"{what} must be bytes, got {described(data)}") from None


def _blobs(what, blobs):
    if not isinstance(blobs, Mapping) or any(not isinstance(key, str) for key in blobs):
        raise TypeError(f"{what} must be a dict of strs to bytes, got {described(blobs)}")
    return [(key, _bytes(f"{what}[{key!r}]", data)) for key, data in blobs.items()]


def _is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)
