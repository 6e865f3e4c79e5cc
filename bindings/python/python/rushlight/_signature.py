"""Inputs and outputs by name and in containers, as in the exported function."""

import collections
import difflib
import functools
import json
import keyword
from collections.abc import Mapping

from . import _rushlight
from ._errors import failure

_MISSING = object()


class Leaf:
    """A tensor, a number, a text or None."""

    size = 1
    is_leaf = True

    def flatten(self, value, path, leaves, what="input"):
        leaves.append(value)

    def build(self, leaves):
        return next(leaves)


class Sequence:
    """A tuple or a list."""

    is_leaf = False

    def __init__(self, make, children):
        self._make = make
        self._children = children
        self.size = sum(child.size for child in children)

    def flatten(self, value, path, leaves, what="input"):
        count = len(self._children)
        if not isinstance(value, (tuple, list)):
            raise _unlike(what, path, f"a {self._make.__name__} of {count}", value)
        if len(value) != count:
            raise TypeError(f"{what} `{path}`: expected a {self._make.__name__} of {count}, got {len(value)}")
        for index, (child, item) in enumerate(zip(self._children, value)):
            child.flatten(item, f"{path}.{index}", leaves, what)

    def build(self, leaves):
        return self._make([child.build(leaves) for child in self._children])


class Fields:
    """A dict, or an object of a class with named fields. `make` builds the returned object."""

    is_leaf = False

    def __init__(self, make, entries, is_class):
        self._make = make
        self._entries = entries
        self._is_class = is_class
        self.size = sum(child.size for _, child in entries)

    def flatten(self, value, path, leaves, what="input"):
        for (key, child), item in zip(self._entries, self._items(value, path, what)):
            child.flatten(item, f"{path}.{key}", leaves, what)

    def _items(self, value, path, what):
        keys = [key for key, _ in self._entries]
        if isinstance(value, Mapping):
            unknown = [key for key in value if key not in keys]
            # A `ModelOutput` is a mapping of the fields that are not None.
            if unknown and not self._is_class:
                raise TypeError(f"{what} `{path}` has no key {unknown[0]!r}{_suggestion(unknown[0], keys)}")
            items = [value.get(key, _MISSING) for key in keys]
        elif not self._is_class:
            raise _unlike(what, path, f"a dict of {_listed(keys)}", value)
        elif isinstance(value, (tuple, list)) and len(value) == len(keys):
            items = value
        else:
            items = [getattr(value, key, _MISSING) for key in keys]
            if items and all(item is _MISSING for item in items):
                raise _unlike(what, path, f"a dict or an object with {_listed(keys)}", value)
        missing = [key for key, item in zip(keys, items) if item is _MISSING]
        if missing:
            raise TypeError(f"{what} `{path}` lacks {_listed(missing)}")
        return items

    def build(self, leaves):
        return self._make([child.build(leaves) for _, child in self._entries])


class Signature:
    """The arguments and the result of a method."""

    __slots__ = ("_fixed", "_is_flat", "_is_single", "_is_tuple", "_method", "_num_inputs", "_outputs", "_parameters", "_ranks", "_rows")

    def __init__(self, meta):
        """Makes a signature from the description of the extension module."""
        parameters, outputs = meta["signature"]
        self._method = meta["name"]
        self._parameters = {name: _structure(parameter) for name, parameter in parameters}
        self._outputs = _structure(outputs)
        self._is_flat = all(parameter.is_leaf for parameter in self._parameters.values())
        self._is_single = self._outputs.is_leaf
        self._is_tuple = outputs[0] == "tuple" and all(child[0] == "leaf" for child in outputs[1])
        self._num_inputs = len(meta["inputs"])
        tensors = [info for info in meta["inputs"] if info["kind"] == "tensor" and info.get("sizes")]
        is_batch = self._is_flat and len(tensors) == len(meta["inputs"]) > 0
        max_rows = min((info["sizes"][0] for info in tensors), default=0) if is_batch else 0
        self._rows = (max_rows or None, not any(".." in (info.get("ranges") or ("",))[0] for info in tensors))
        self._ranks = [len(info["sizes"]) if info["kind"] == "tensor" else None for info in meta["inputs"]]
        # The values that the export fixed, by position.
        self._fixed = {at: info["value"] for at, info in enumerate(meta["inputs"]) if info["kind"] not in ("tensor", "list")}

    @property
    def is_plain(self):
        """True if inputs are in no containers, and the output is a single leaf or a tuple of leaves."""
        return self._is_flat and (self._is_single or (self._is_tuple and self._outputs.size > 1))

    @property
    def names(self):
        """The names of the parameters."""
        return list(self._parameters)

    @property
    def ranks(self):
        """The number of dimensions of each input, in the order of the method; None for inputs that are no tensors."""
        return self._ranks

    @property
    def rows(self):
        """The maximum rows along the first dimensions of all inputs, and True if no other number is allowed. The maximum is None if
        inputs are numbers or in containers."""
        return self._rows

    def arguments(self, call):
        """Returns the inputs of a call in the order of the method's inputs. They are a dict by name, a tuple or list, or a single one."""
        if isinstance(call, Mapping):
            return self.flatten((), call)
        return self.flatten(tuple(call) if isinstance(call, (tuple, list)) else (call,), {})

    def flatten(self, inputs, named):
        """Returns the inputs of a call in the order of the method's inputs.

        Raises TypeError, like Python for a call of a function.
        """
        if not named and (self._is_flat or self._are_leaves(inputs)):
            # The runtime's error for a wrong number of inputs describes them.
            return inputs
        names = list(self._parameters)
        if len(inputs) > len(names):
            raise TypeError(f"`{self._method}` takes {_inputs(len(names))} ({_listed(names)}), got {len(inputs)}")
        given = dict(zip(names, inputs))
        for name, value in named.items():
            if name not in self._parameters:
                raise TypeError(f"`{self._method}` has no input `{name}`{_suggestion(name, names)}")
            if name in given:
                raise TypeError(f"input `{name}` of `{self._method}` is given twice, by position and by name")
            given[name] = value
        leaves, missing = [], []
        for name, parameter in self._parameters.items():
            if name in given:
                parameter.flatten(given[name], name, leaves)
                continue
            positions = range(len(leaves), len(leaves) + parameter.size)
            if not all(at in self._fixed for at in positions):
                missing.append(name)
            leaves.extend(self._fixed.get(at) for at in positions)
        if missing:
            raise TypeError(f"`{self._method}` lacks {_inputs(len(missing))}: {_listed(missing)}")
        return leaves

    def flatten_outputs(self, out):
        """Returns the arrays for the outputs of a call in the order of the method's outputs. `out` is in the containers of the result.

        Raises TypeError for other containers.
        """
        leaves = []
        self._outputs.flatten(out, "out", leaves, "argument")
        return leaves

    def _are_leaves(self, inputs):
        """Whether they are what is in the containers, without these."""
        return (
            len(inputs) == self._num_inputs
            and len(inputs) != len(self._parameters)
            and not any(isinstance(value, (tuple, list, Mapping)) for value in inputs)
        )

    def build(self, outputs):
        """Puts the outputs of a call into the containers of the exported function."""
        if self._is_single:
            return outputs[0]
        if self._is_tuple:
            return tuple(outputs)
        return self._outputs.build(iter(outputs))


def of_method(core, method):
    """Returns the signature of a method; None for a program without one, such as those of ExecuTorch's compiler."""
    meta = core.meta(method)
    return None if meta["signature"] is None else Signature(meta)


def of_exported(method, source):
    """Returns the signature of the exported program in a .pt2 file or its bytes."""
    return Signature({"name": method, **_rushlight.exported_meta(source)})


def _structure(description):
    kind, *rest = description
    if kind == "leaf":
        return Leaf()
    if kind in ("tuple", "list"):
        return Sequence(tuple if kind == "tuple" else list, [_structure(child) for child in rest[0]])
    if kind == "dict":
        entries = [(_key(*key), _structure(child)) for key, child in rest[0]]
        keys = [key for key, _ in entries]
        _check_distinct(keys)
        return Fields(lambda values: dict(zip(keys, values)), entries, is_class=False)
    name, fields = rest
    entries = [(field, _structure(child)) for field, child in fields]
    keys = [field for field, _ in entries]
    if kind == "named tuple":
        return Fields(_named_tuple(name.rpartition(".")[2], tuple(keys))._make, entries, is_class=True)
    return Fields(lambda values: dict(zip(keys, values)), entries, is_class=True)


@functools.lru_cache(maxsize=256)
def _named_tuple(name, fields):
    """Returns the class of named tuples with a name and fields. A process has one class for each."""
    # A keyword cannot be a name in Python, and a damaged file may have any text.
    is_usable = name.isidentifier() and not keyword.iskeyword(name)
    made = collections.namedtuple(name if is_usable else "NamedTuple", fields, rename=True)
    # No module has the class under its name, so that a pickle stores how to make it.
    made.__reduce__ = lambda self: (_pickled_named_tuple, (name, fields, tuple(self)))
    return made


def _pickled_named_tuple(name, fields, values):
    return _named_tuple(name, fields)._make(values)


def _key(kind, key):
    """Converts a key of a dict. A key that is neither a text nor an int is written as JSON, with lists for tuples."""
    if kind != "other":
        return key
    try:
        read = _tuples(json.loads(key))
        hash(read)
    except (TypeError, ValueError, RecursionError):
        return key
    return read


def _tuples(value):
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _check_distinct(keys):
    """Refuses keys that are equal in Python, such as 1, 1.0 and True."""
    known = {}
    for key in keys:
        if key in known:
            raise failure(
                "InvalidProgram",
                f"a dictionary of the signature has the keys {known[key]!r} and {key!r}, which are one key in Python",
                hint="export the model with other keys",
            )
        known[key] = key


def _unlike(what, path, expected, value):
    return TypeError(f"{what} `{path}`: expected {expected}, got {type(value).__name__}")


def _suggestion(name, known):
    known = [str(key) for key in known]
    near = difflib.get_close_matches(str(name), known, 1)
    return f". Did you mean `{near[0]}`?" if near else f"; it has {_listed(known)}"


def _listed(names):
    return ", ".join(f"`{name}`" for name in names)


def _inputs(count):
    return "1 input" if count == 1 else f"{count} inputs"
