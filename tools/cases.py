"""The recorded calls of a whole model: what its inputs were and what eager PyTorch answered.

Both the generated models (`tools/models`) and the checked-in corpus (`tools/corpus`) write this form, and the Rust tests
read it. One JSON object describes one program file:

    {
      "name":     "lstm",
      "program":  "model.pte",            file, relative to the JSON file; absent when ExecuTorch has none that runs
      "exported": {"forward": ["forward.pt2", "forward.core.pt2"]},
                                          each method as torch.export.save wrote it, straight from export and after
                                          run_decompositions(); absent when there are none
      "unsupported": "demo::cube",        part of the name of an operator without any kernel, which keeps the model from
                                          being compiled
      "bundled":  true,                   present when the file is a bundled program (.bpte) around the program
      "data":     ["weights.ptd"],        external constants to give at load; absent when there are none
      "backends": ["XnnpackBackend"],     delegates without which the program cannot load; absent for portable programs
      "calls":    [CALL, ...],            to be made in this order on one loaded module: buffers keep their state
      "source":   "9f86d0...",            what the file was generated from; of no interest to a reader
      "made_with": {"executorch": "1.5.1", "torch": "2.15.0"}
    }

    CALL  = {"method": "forward", "inputs": [VALUE, ...], "outputs": [VALUE, ...], "tolerance": 0.0001}

Inputs and outputs are the leaves of the method's arguments and results in pytree order, which is the order of the
program's inputs and outputs; inputs that a method writes to are its first outputs, with their new values. A value is one
of

    {"kind": "tensor", "dtype": "float32", "shape": [2, 3], "array": "arg_0", "file": "inputs_0.npz"}
    {"kind": "tensor", "dtype": "float32", "shape": [2, 3], "base64": "..."}
    {"kind": "int", "value": 3}     {"kind": "float", "value": 0.5}     {"kind": "bool", "value": true}
    {"kind": "none"}

The elements of a tensor stand in row-major order, little-endian, whatever its memory format. A tensor that has another
memory format than contiguous carries `"dim_order": [0, 2, 3, 1]`: an input has to be laid out so before the call, and an
output comes so (its elements are compared by index). `dtype` is PyTorch's name. NumPy has no bfloat16: such an array is
stored as uint16 with the same bits. In files, call K has its inputs in `inputs_K.npz` as `arg_0`, `arg_1`, ... and its
outputs in `expected_K.npz` as `out_0`, ...; the number is the position among all leaves, tensors or not.

A floating-point output is right when every element satisfies |got - want| <= tolerance * scale, with scale the largest
finite |want| of that output (1 when that is 0); NaN equals NaN, and an infinity only itself. Integers and booleans are
exact at tolerance 0; at another tolerance the same rule holds for integers (quantized results may round differently).
"""

import base64
import json
import math

import numpy as np
import torch
from torch.utils import _pytree as pytree

DTYPE_NAMES = {
    dtype: str(dtype).removeprefix("torch.")
    for dtype in (
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    )
}


def leaves(*trees):
    """The leaves of all trees in pytree order; None counts as a leaf."""
    return [leaf for tree in trees for leaf in pytree.tree_flatten(tree)[0]]


def say_something(results):
    """Whether any result is more than tensors of zeros, with which everything that is broken agrees."""
    return any(not isinstance(result, torch.Tensor) or bool(result.any()) for result in results)


def array(tensor):
    """The tensor's elements as a row-major array of its dtype; bfloat16 as uint16."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
        return tensor.numpy().view(np.uint16)
    return tensor.numpy()


def value(leaf, where):
    """The VALUE of a leaf; `where` gives a tensor's place from its array, as a dict to merge."""
    if isinstance(leaf, torch.Tensor):
        described = {"kind": "tensor", "dtype": DTYPE_NAMES[leaf.dtype], "shape": list(leaf.shape)}
        if leaf.dim() == 4 and not leaf.is_contiguous() and leaf.is_contiguous(memory_format=torch.channels_last):
            described["dim_order"] = [0, 2, 3, 1]
        return {**described, **where(array(leaf))}
    if leaf is None:
        return {"kind": "none"}
    for kind in (bool, int, float):
        if isinstance(leaf, kind):
            if not math.isfinite(leaf):
                raise ValueError(f"{leaf} has no form in JSON")
            return {"kind": kind.__name__, "value": leaf}
    raise TypeError(f"a {type(leaf).__name__} cannot be an input or output of a program")


def inline(leaf):
    """The VALUE of a leaf with its elements in place."""
    return value(leaf, lambda elements: {"base64": base64.b64encode(elements.tobytes()).decode()})


def filed(values, prefix, path):
    """The VALUEs of leaves whose tensors are written to the .npz at `path` as prefix_0, prefix_1, ..."""
    arrays, described = {}, []
    for position, leaf in enumerate(values):
        name = f"{prefix}_{position}"

        def put(elements, name=name):
            arrays[name] = elements
            return {"array": name, "file": path.name}

        described.append(value(leaf, put))
    np.savez(path, **arrays)
    return described


def eager(module, method_inputs, written=()):
    """Runs eager PyTorch on copies of the inputs, since a module may write to them.

    `written` are the numbers of the input leaves that it does write to and whose new values a program returns: they
    precede the results.
    """
    with torch.no_grad():
        args = pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, method_inputs)
        results = module(*args)
        inputs = leaves(args)
        if written:
            results = *(inputs[number] for number in written), results
    return pytree.tree_map(lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x, results)


def dump(description, path):
    """Writes the JSON with one call a line, so that a diff shows which call changed."""
    calls = ",\n  ".join(json.dumps(call) for call in description["calls"])
    head = {key: item for key, item in description.items() if key != "calls"}
    path.write_text(json.dumps(head, indent=1)[:-2] + f',\n "calls": [\n  {calls}\n ]\n}}\n')
