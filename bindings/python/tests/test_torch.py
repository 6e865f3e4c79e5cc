"""The wheel beside torch, numpy and ExecuTorch's own bindings."""

import pathlib

import numpy as np
import pytest
import rushlight
import torch
from rushlight.compat import portable_lib

ROOT = pathlib.Path(__file__).resolve().parents[3]
CORPUS = ROOT / "tests" / "corpus" / "1.5.1"


def program(name):
    return CORPUS / f"{name}.pte"


def example_inputs(name):
    meta = rushlight.load(program(name)).meta()
    torch.manual_seed(0)
    return [torch.rand(info.sizes) for info in meta.inputs]


def test_torch_in_torch_out():
    inputs = example_inputs("add")
    result = rushlight.load(program("add"))(*inputs)
    assert isinstance(result, torch.Tensor)


def test_numpy_in_numpy_out():
    inputs = example_inputs("linear")
    module = rushlight.load(program("linear"))
    result = module(*[x.numpy() for x in inputs])
    assert isinstance(result, np.ndarray) and result.dtype == np.float32
    np.testing.assert_array_equal(result, module(*inputs).numpy())


def test_strided_inputs_are_read_by_their_strides():
    (x,) = example_inputs("conv")
    module = rushlight.load(program("conv"))
    expected = module(x)
    transposed = x.transpose(-1, -2).contiguous().transpose(-1, -2)
    assert not transposed.is_contiguous()
    torch.testing.assert_close(module(transposed), expected, rtol=0, atol=0)
    torch.testing.assert_close(module(x.to(memory_format=torch.channels_last)), expected, rtol=0, atol=0)
    assert np.array_equal(module(transposed.numpy()), expected.numpy())


def test_torch_inputs_are_not_copied():
    """An unplanned input is read where it is: two tensors over one storage see the same call-time values."""
    storage = np.zeros(4, dtype=np.float32)
    view = torch.from_numpy(storage)
    assert view.data_ptr() == storage.__array_interface__["data"][0]
    result = torch.from_dlpack(rushlight.load(program("linear"))(example_inputs("linear")[0].numpy()))
    assert result.dtype == torch.float32


def test_state_is_kept_between_calls():
    module = rushlight.load(program("counter"))
    info = module.meta().inputs
    inputs = [torch.ones(i.sizes) for i in info]
    first, second = module(*inputs), module(*inputs)
    flat = lambda r: r if isinstance(r, torch.Tensor) else r[0]  # noqa: E731
    assert not torch.equal(flat(first), flat(second))


def test_errors_carry_their_parts():
    module = rushlight.load(program("linear"))
    with pytest.raises(rushlight.Error) as caught:
        module(torch.ones(3, 3, 3))
    assert caught.value.code in (0x12, 0x13) and caught.value.expected and caught.value.got
    with pytest.raises(rushlight.Error) as caught:
        rushlight.load(program("xnnpack"), lower="off")(torch.ones(1))
    assert "XnnpackBackend" in str(caught.value)
    with pytest.raises(TypeError):
        module(object())


def test_external_data():
    module = rushlight.load(program("external"), data=CORPUS / "external.ptd")
    assert module(*example_inputs("external")) is not None
    with pytest.raises(rushlight.Error):
        rushlight.load(program("external"))(*example_inputs("external"))


# The same script against both bindings: what differs is the import.
def bindings():
    from executorch.extension.pybindings import portable_lib as theirs

    return {"rushlight": portable_lib, "executorch": theirs}


@pytest.mark.parametrize("name", ["add", "linear", "mlp", "conv", "softmax", "cond", "counter", "multi_method"])
def test_compat_agrees_with_executorch(name):
    results = {}
    for key, lib in bindings().items():
        module = lib._load_for_executorch(str(program(name)))
        assert sorted(module.method_names()) == sorted(rushlight.load(program(name)).method_names)
        method = "forward" if "forward" in module.method_names() else "encode"
        meta = module.method_meta(method)
        torch.manual_seed(0)
        inputs = [torch.rand(meta.input_tensor_meta(i).sizes()) for i in range(meta.num_inputs())]
        outputs = module.run_method(method, inputs)
        infos = [meta.output_tensor_meta(i) for i in range(meta.num_outputs())]
        results[key] = (outputs, [(i.sizes(), i.dtype(), i.nbytes()) for i in infos], meta.name())
    ours, theirs = results["rushlight"], results["executorch"]
    assert ours[1:] == theirs[1:]
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-5, atol=1e-5)


def test_compat_program_and_method():
    for lib in bindings().values():
        loaded = lib._load_program(str(program("linear")))
        assert loaded.num_methods() == 1 and loaded.get_method_name(0) == "forward"
        method = loaded.load_method("forward")
        inputs = example_inputs("linear")
        (direct,) = method.call(inputs)
        method.set_inputs(inputs)
        method.execute()
        (stepwise,) = method.get_outputs()
        torch.testing.assert_close(direct, stepwise)


def test_compat_buffer_and_bundled():
    from executorch.extension.pybindings import portable_lib as theirs

    data = (CORPUS / "bundled.bpte").read_bytes()
    bundle = portable_lib._load_bundled_program_from_buffer(data)
    module = portable_lib._load_for_executorch_from_bundled_program(bundle)
    method = module.method_names()[0]
    module.verify_result_with_bundled_expected_output(bundle, method, 0, 1e-3, 1e-3)
    buffer = program("mlp").read_bytes()
    inputs = example_inputs("mlp")
    ours = portable_lib._load_for_executorch_from_buffer(buffer)(inputs)
    torch.testing.assert_close(ours, theirs._load_for_executorch_from_buffer(buffer)(inputs), rtol=1e-5, atol=1e-5)


def test_compat_has_every_name():
    from executorch.extension.pybindings import portable_lib as theirs

    names = {n for n in dir(theirs) if n.startswith("_load") or n in portable_lib.__all__}
    assert names <= set(dir(portable_lib)), names - set(dir(portable_lib))


def test_programs_are_lowered_when_that_is_asked_for_and_say_why_not():
    small = rushlight.load(program("linear"))
    assert not small.report.lowered and "small" in small.report.reason
    lowered = rushlight.load(program("linear"), lower="cpu")
    assert lowered.report.lowered and "RushlightCpu" in lowered.report.backends
    x = torch.randn(tuple(small.meta().inputs[0].sizes))
    torch.testing.assert_close(lowered(x), rushlight.load(program("linear"), lower="off")(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(rushlight.Error, match="`auto`, `off`, `cpu`"):
        rushlight.load(program("linear"), lower="npu")


@pytest.mark.parametrize("length", [3, 8, 20])
def test_sizes_that_executorchs_programs_leave_open(length):
    """ExecuTorch writes no sizes that are fixed beside others that are not: what a program cannot do is found in a call."""
    from executorch.exir import to_edge

    torch.manual_seed(0)
    layer = torch.nn.Linear(5, 7)

    class Network(torch.nn.Module):
        def forward(self, x):
            return layer(x.transpose(0, 1)), x.expand(2, x.shape[1], 5).softmax(0)

    network, x = Network().eval(), torch.randn(2, length, 5)
    sizes = {"x": {1: torch.export.Dim("time", min=3, max=20)}}
    edge = to_edge(torch.export.export(network, (torch.randn(2, 8, 5),), dynamic_shapes=sizes))
    file = edge.to_executorch().buffer
    for lower in ("off", "cpu"):
        module = rushlight.load(file, lower=lower)
        for got, expected in zip(module(x), network(x), strict=True):
            torch.testing.assert_close(got, expected)
        for wrong in (x[..., :4], torch.cat([x, x])):
            with pytest.raises((RuntimeError, ValueError)):
                module(wrong)
