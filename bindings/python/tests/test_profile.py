"""Times of a module: of its runs, its operators, its instructions and the steps of its delegates."""

import json

import pytest

torch = pytest.importorskip("torch")

import rushlight


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 128), torch.nn.Linear(128, 8)

    def forward(self, x, scale):
        return self.second(torch.relu(self.first(x))) * scale


@pytest.fixture(scope="module")
def exported():
    torch.manual_seed(0)
    return torch.export.export(Two().eval(), (torch.randn(4, 64), torch.ones(())))


def test_a_benchmark_has_the_time_of_each_run(exported):
    module = rushlight.load(rushlight.compile(exported, backend="cpu").buffer)
    measured = module.benchmark(torch.randn(4, 64), torch.ones(()), warmup=1, runs=7)
    assert len(measured.times) == 7 and 0 < measured.fastest <= measured.median <= max(measured.times)
    assert "median" in repr(measured) and "<table>" in measured._repr_html_()
    # As in a call, inputs have names.
    assert len(module.benchmark(scale=torch.ones(()), x=torch.randn(4, 64), runs=2).times) == 2


@pytest.mark.parametrize("backend", ["portable", "cpu"])
def test_a_profile_divides_the_time_of_a_run(exported, backend, tmp_path):
    module = rushlight.load(rushlight.compile(exported, backend=backend).buffer, lower="off")
    profile = module.profile(torch.randn(4, 64), scale=torch.ones(()), runs=4)
    assert 0 < sum(row.seconds for row in profile.instructions) <= profile.seconds * 1.5
    assert sum(row.calls for row in profile.operators) >= len(profile.instructions)
    nodes = {row.node for row in (profile.steps or profile.instructions)}
    assert "linear_1" in nodes or "mul" in nodes
    if backend == "cpu":
        assert {step.backend for step in profile.steps} == {"RushlightCpu"} and profile.limits[0].flops_per_s > 0
        assert profile.slowest(1)[0].seconds == max(step.seconds for step in profile.steps)
        assert abs(sum(step.share for step in profile.steps) - 1) < 1e-6
        assert all(0 <= step.limit_share and step.limit in ("compute", "memory") for step in profile.steps if step.flops_per_s)
    else:
        assert not profile.steps and "second" in {row.module for row in profile.instructions}
    profile.save_trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())
    assert "one run" in repr(profile)


def test_wrong_arguments_are_those_of_a_call(exported):
    module = rushlight.load(rushlight.compile(exported).buffer)
    for measure in (module.benchmark, module.profile):
        with pytest.raises(rushlight.Error, match="input 0"):
            measure(torch.randn(3), torch.ones(()))
        with pytest.raises(TypeError, match="no input `y`"):
            measure(y=torch.randn(3))
        with pytest.raises(ValueError, match="runs must be an int from 1"):
            measure(torch.randn(4, 64), torch.ones(()), runs=0)
        with pytest.raises(rushlight.Error, match="no_such"):
            measure(torch.randn(4, 64), method="no_such")
