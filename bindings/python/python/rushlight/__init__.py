"""Compiles PyTorch models to ExecuTorch's .pte format and runs them. Needs neither torch nor numpy, works with both.

    program = rushlight.export(model, (x,))     # or, without torch: rushlight.compile("model.pt2")
    program.save("model.pte")

    module = rushlight.load("model.pte")
    y = module(x)          # torch in, torch out; numpy in, numpy out; any buffer in, rushlight.Tensor out
"""

from ._compile import MethodReport, Program, Report, compile, export, register_op
from ._errors import Error
from ._meta import MethodMeta, OperatorUse, TensorInfo, ValueInfo
from ._module import Module, load
from ._rushlight import Tensor, __version__, operator_names

__all__ = [
    "Error",
    "MethodMeta",
    "MethodReport",
    "Module",
    "OperatorUse",
    "Program",
    "Report",
    "Tensor",
    "TensorInfo",
    "ValueInfo",
    "__version__",
    "compile",
    "export",
    "load",
    "operator_names",
    "register_op",
]
