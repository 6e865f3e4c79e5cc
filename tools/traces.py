"""Archives of `torch.export.save` without the folders of the machine that makes them."""

import io
import re
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent


def strip(program):
    """Shortens the stack traces of all nodes to the innermost call, and file names to their last part."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("from_node", None)
                if node.meta.get("stack_trace"):
                    trace = re.sub(r'File "[^"]*/', 'File "', node.meta["stack_trace"])
                    node.meta["stack_trace"] = "\n".join(trace.splitlines()[-2:])


def archive(program, name, **options):
    """Returns the bytes of a program's archive, which name no folder."""
    strip(program)
    file = io.BytesIO()
    torch.export.save(program, file, **options)
    data = file.getvalue()
    if str(ROOT).encode() in data or b"site-packages" in data:
        raise ValueError(f"{name} names folders of this machine")
    return data
