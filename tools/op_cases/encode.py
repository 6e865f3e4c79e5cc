"""Tensors and arguments as JSON, in the form that `crates/testing` reads."""

import base64
import math

import torch

NAMES = {
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex32: "c32",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.bool: "bool",
    torch.bfloat16: "bf16",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
}
CODES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex32: 8,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.uint16: 27,
    torch.uint32: 28,
    torch.uint64: 29,
}
MEMORY_FORMATS = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}
CHANNELS_LAST = ((0, 2, 3, 1), (0, 2, 3, 4, 1))


def dim_order(t):
    """The dim order that ExecuTorch's exporter derives from strides, or None where that is not a
    dense contiguous or channels-last layout."""
    order = tuple(sorted(range(t.dim()), key=lambda d: -t.stride(d)))
    identity = tuple(range(t.dim()))
    if order != identity and order in CHANNELS_LAST and t.permute(order).is_contiguous():
        return order
    return identity if t.is_contiguous() else None


def dense(t):
    """`t` in a layout that a program can hold: itself, or a contiguous copy."""
    t = t.detach().resolve_conj().resolve_neg()
    return t if dim_order(t) is not None else t.contiguous()


def tensor(t):
    """A tensor as {"t": dtype, "s": sizes, "d": base64 of little-endian bytes, "o": dim order unless identity}."""
    t = dense(t)
    order = dim_order(t)
    flat = t.permute(order).contiguous().reshape(-1)
    if flat.dtype.is_complex:
        flat = torch.view_as_real(flat).reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    out = {"t": NAMES[t.dtype], "s": list(t.shape), "d": base64.b64encode(data).decode()}
    if order != tuple(range(t.dim())):
        out["o"] = list(order)
    return out


def float_repr(x):
    x = float(x)
    if math.isnan(x):
        return "nan"
    return repr(x)


def scalar(x):
    """A Python number as the .pte stores it: bool, int and float keep their kind."""
    if isinstance(x, bool):
        return {"b": x}
    if isinstance(x, int):
        return {"i": x}
    return {"f": float_repr(x)}


def argument(value, kind):
    """One argument; `kind` is the schema's type as text, for example `Tensor?[]` or `Scalar`."""
    optional = kind.rstrip("?")
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        return tensor(value)
    if isinstance(value, torch.dtype):
        return {"i": CODES[value]}
    if isinstance(value, torch.memory_format):
        return {"i": MEMORY_FORMATS[value]}
    if isinstance(value, str):
        return {"str": value}
    if isinstance(value, (list, tuple)):
        items = list(value)
        if "Tensor?" in kind:
            return {"otl": [None if t is None else tensor(t) for t in items]}
        if "Tensor" in kind:
            return {"tl": [tensor(t) for t in items]}
        if optional.startswith("float") or (optional.startswith("Scalar") and any(isinstance(x, float) for x in items)):
            return {"dl": [float_repr(x) for x in items]}
        if optional.startswith("bool"):
            return {"bl": [bool(x) for x in items]}
        return {"il": [int(x) for x in items]}
    if optional == "float":
        return {"f": float_repr(value)}
    if optional.startswith(("int", "SymInt")) and "[" in optional:
        # A schema such as int[2] takes one number for all its places.
        count = int(optional[optional.index("[") + 1 : optional.index("]")] or 1)
        return {"il": [int(value)] * count}
    if optional in ("int", "SymInt"):
        return {"i": int(value)}
    if optional == "bool":
        return {"b": bool(value)}
    return scalar(value)
