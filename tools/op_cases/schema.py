"""Out variants as programs name them, and the functional overloads that compute their values."""

from dataclasses import dataclass
from functools import lru_cache

import torch

# Arguments of factory functions that an out variant drops: the out tensor carries them.
OPTIONS = ("dtype", "layout", "device", "pin_memory")


@dataclass
class Operator:
    """A program's operator: its overload, the functional one, and the roles of the arguments."""

    name: str
    overload: object
    functional: object

    @property
    def schema(self):
        return self.overload._schema

    @property
    def inputs(self):
        return [a for a in self.schema.arguments if not a.is_out]

    @property
    def outs(self):
        return [a for a in self.schema.arguments if a.is_out]


def overload(name):
    """`aten::add.out` -> torch.ops.aten.add.out."""
    namespace, _, rest = name.partition("::")
    packet, _, which = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), which or "default")


@lru_cache(maxsize=None)
def operator(name):
    out = overload(name)
    if not any(a.is_out for a in out._schema.arguments):
        return Operator(name, out, out)
    wanted = [(a.name, str(a.type)) for a in out._schema.arguments if not a.is_out]
    packet = out._overloadpacket
    for which in packet.overloads():
        candidate = getattr(packet, which)
        args = [(a.name, str(a.type)) for a in candidate._schema.arguments]
        plain = [a for a in args if a[0] not in OPTIONS or a in wanted]
        if plain == wanted and not any(a.is_out for a in candidate._schema.arguments):
            return Operator(name, out, candidate)
    raise LookupError(f"no functional overload for {name}")


def bind(op, args, kwargs):
    """Arguments by name, with the schema's defaults for those not given."""
    schema = op.functional._schema
    bound = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    positional = [a.name for a in schema.arguments if not a.kwarg_only]
    # A functional overload may order its options before an argument that its out variant shares.
    bound.update(zip(positional, args))
    bound.update(kwargs)
    return bound
