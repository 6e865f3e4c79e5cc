"""A plugin of pytest: what ExecuTorch's tests import of its bindings and runtime is Rushlight's."""

import sys

import executorch.extension.pybindings as pybindings
import executorch.kernels.quantized  # noqa: F401  the exporter's operators, which ExecuTorch's extension module registers
import rushlight.compat.portable_lib
import rushlight.compat.runtime

pybindings.portable_lib = sys.modules["executorch.extension.pybindings.portable_lib"] = rushlight.compat.portable_lib
sys.modules["executorch.runtime"] = rushlight.compat.runtime
