"""Writes the addition of two tensors of 2 x 3 floats for ONNX Runtime.

    python benches/call/add.py FILE
"""

import sys

import onnx
from onnx import TensorProto, helper


def tensor(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3])


node = helper.make_node("Add", ["x", "y"], ["sum"])
graph = helper.make_graph([node], "add", [tensor("x"), tensor("y")], [tensor("sum")])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), sys.argv[1])
