"""Runs PyTorch models exported to ExecuTorch's .pte format. Needs neither torch nor numpy, and works with both.

    module = rushlight.load("model.pte")
    y = module(x)          # torch in, torch out; numpy in, numpy out; any buffer in, rushlight.Tensor out
"""

from ._errors import Error
from ._meta import MethodMeta, OperatorUse, TensorInfo, ValueInfo
from ._module import Module, load
from ._rushlight import Tensor, __version__, operator_names

__all__ = [
    "Error",
    "MethodMeta",
    "Module",
    "OperatorUse",
    "Tensor",
    "TensorInfo",
    "ValueInfo",
    "__version__",
    "load",
    "operator_names",
]
