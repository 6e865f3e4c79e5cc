"""Compiles PyTorch models to ExecuTorch's .pte format and runs them. Needs neither torch nor numpy, works with both.

    program = rushlight.export(model, (x,))     # or, without torch: rushlight.compile("model.pt2")
    program.save("model.pte")

    module = rushlight.load("model.pte")
    y = module(x)          # torch in, torch out; numpy in, numpy out; any buffer in, rushlight.Tensor out
"""

from ._backend import Backend, BackendInfo, MethodBackend, OptionSpec, Payload, backends, register_backend
from ._calls import Binding, Instances
from ._compare import ComparedOutput, Comparison, ComparisonRow, compare
from ._compile import MethodReport, Program, Report, compile, export, register_op
from ._errors import Error
from ._graph import Claims, Constants, Metadata, Method, Node, Part, State, SymInt, Value
from ._meta import MethodMeta, OperatorUse, TensorInfo, ValueInfo
from ._module import Module, load
from ._profile import Benchmark, InstructionTime, Limit, OperatorTime, Profile, StepTime, Trace, TraceEvent
from ._quantization import (
    Quantization,
    QuantizationProposal,
    QuantizationReport,
    QuantizationWarning,
    QuantizedLayer,
    QuantizedOutput,
)
from ._report import LoadReport, NodeReport
from ._rushlight import Tensor, __version__, operator_names

__all__ = [
    "Backend",
    "BackendInfo",
    "Benchmark",
    "Binding",
    "Claims",
    "ComparedOutput",
    "Comparison",
    "ComparisonRow",
    "Constants",
    "Error",
    "Instances",
    "InstructionTime",
    "Limit",
    "LoadReport",
    "Metadata",
    "Method",
    "MethodBackend",
    "MethodMeta",
    "MethodReport",
    "Module",
    "Node",
    "NodeReport",
    "OperatorTime",
    "OperatorUse",
    "OptionSpec",
    "Part",
    "Payload",
    "Profile",
    "Program",
    "Quantization",
    "QuantizationProposal",
    "QuantizationReport",
    "QuantizationWarning",
    "QuantizedLayer",
    "QuantizedOutput",
    "Report",
    "State",
    "StepTime",
    "SymInt",
    "Tensor",
    "TensorInfo",
    "Trace",
    "TraceEvent",
    "Value",
    "ValueInfo",
    "__version__",
    "backends",
    "compare",
    "compile",
    "export",
    "load",
    "operator_names",
    "register_backend",
    "register_op",
]
