"""Backends that are written in Python: what they are offered, what they compile, and how they run it."""

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
    """

    name: str
    dtype: str
    shape: Optional[tuple]
    dim_order: Optional[tuple]
    is_constant: bool
    id: int

    @property
    def is_static(self):
        """Whether it is a tensor whose sizes are all known."""
        return self.shape is not None and all(isinstance(size, int) for size in self.shape)

    def __str__(self):
        shape = "" if self.shape is None else f"[{', '.join(map(str, self.shape))}]"
        return f"{self.name}: {self.dtype}{shape}"


class Node(NamedTuple):
    """A call of an operator.

    `name` is the node of the exported program, of which several nodes may have been made; `op` the operator's full name,
    such as "aten::add.Tensor"; `args` its arguments by the names of the schema, defaults filled in: `Value`s, numbers,
    strs (dtypes by PyTorch's name), None, and lists of these. `inputs` are the `Value`s among them, in order.
    `module` is the path of the module that was called, `source` the line of Python, if known.
    """

    name: str
    op: str
    args: dict
    inputs: list
    outputs: list
    module: str
    source: Optional[str]

    def __str__(self):
        return f"{self.op}({', '.join(map(str, self.inputs))}) -> {', '.join(map(str, self.outputs))}"


class Constants(Mapping):
    """The constants of a part by their `Value`. Each is read when it is asked for, as a `rushlight.Tensor`."""

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


class Part(NamedTuple):
    """A part of a method that a backend took.

    The delegate's `execute` gets the `inputs` in this order, and returns the `outputs` in theirs. The nodes stand in the
    order of computation. `str()` gives the graph as text.
    """

    method: str
    inputs: list
    outputs: list
    nodes: list
    constants: Constants
    text: str

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


class Backend(Protocol):
    """The ahead-of-time half of a backend: what `backend=` takes. Any object with these members will do.

    A backend may also have `options`, a sequence of `OptionSpec`s, and then has `set_option(name, value)`, which is called for each of
    them before anything is compiled, with what the user gave or the default: `backend=(Npu(), {"mode": "exact"})`.
    What these functions raise becomes the `__cause__` of the `rushlight.Error` that the compilation raises.
    """

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
        outputs = delegate.num_outputs
        if not _is_int(outputs) or outputs < 0:
            raise TypeError(f"`num_outputs` of a delegate of `{name}` must be an int of at least 0, got {outputs!r}")

        def execute(inputs):
            results = delegate.execute(inputs)
            results = list(results) if isinstance(results, (list, tuple)) else [results]
            if len(results) != outputs:
                raise ValueError(f"a delegate of `{name}` returned {len(results)} results, expected {outputs}")
            return results

        return outputs, execute

    _rushlight.register_backend(name, prepare)


class Adapter:
    """A user's backend as the extension module calls it: checks what comes back, and makes the objects it is shown."""

    # Called by the extension module.
    size = SymInt
    value = Value

    def __init__(self, backend, options):
        self.name = _name(backend)
        for needed in ("partition", "preprocess"):
            if not callable(getattr(backend, needed, None)):
                raise TypeError(
                    f"the backend `{self.name}` ({type(backend).__name__}) has no method `{needed}`: expected `name`, "
                    "`partition(node)` and `preprocess(part)`"
                )
        self._backend = backend
        self.options = _declared(self.name, getattr(backend, "options", ()))
        if self.options and not callable(getattr(backend, "set_option", None)):
            raise TypeError(f"the backend `{self.name}` has options, and no method `set_option(name, value)`")
        _rushlight.set_options(self, _given(options))

    def set_option(self, name, value):
        self._backend.set_option(name, value)

    def node(self, *fields):
        return Node(*fields)

    def part(self, method, inputs, outputs, nodes, values, constants, text):
        return Part(method, inputs, outputs, nodes, Constants(values, constants), text)

    def partition(self, node):
        """None to take the node, else the reason why not."""
        answer = self._backend.partition(node)
        if answer is True:
            return None
        if answer is False:
            return "not supported"
        if isinstance(answer, str):
            return answer
        raise TypeError(f"expected True, False or a str with the reason why not, got {_described(answer)}")

    def preprocess(self, part):
        payload = self._backend.preprocess(part)
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
            f"expected the name of a backend, or an object with `name`, `partition(node)` and `preprocess(part)`, got "
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
