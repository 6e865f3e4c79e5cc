"""The executorch wheel's own compiler: what it makes of exported programs, and what that costs."""

import time
from pathlib import Path


def peak_memory():
    """The largest resident size of this process since `forget_peak`, and the present one, in bytes."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(int(status[key].split()[0]) * 1024 for key in ("VmHWM", "VmRSS"))


def forget_peak():
    """Starts the largest resident size again from the present one."""
    Path("/proc/self/clear_refs").write_text("5")


def compile(exported, config, *, constant_methods=None, beyond_core=False):
    """Compiles exported programs by method name in portable form; the program manager, and what there is to record.

    `seconds` are of `to_edge` and `to_executorch` together, and `cpu_seconds` what they spent on processors, which other
    programs on the machine disturb less; `peak_bytes` is the largest resident size of the process in
    that time, of which `before_bytes` were there already. `planned_bytes` holds the sizes of each method's arenas.
    """
    import executorch.kernels.quantized  # noqa: F401  registers the operators of quantized models
    from executorch.exir import EdgeCompileConfig, to_edge

    forget_peak()
    _, before = peak_memory()
    start, spent = time.perf_counter(), time.process_time()
    checked = EdgeCompileConfig(_check_ir_validity=not beyond_core)
    edge = to_edge(exported, constant_methods=constant_methods or None, compile_config=checked)
    program = edge.to_executorch(config)
    seconds, spent = time.perf_counter() - start, time.process_time() - spent
    peak, _ = peak_memory()
    # The first size belongs to the constants, and is always 0.
    planned = {plan.name: plan.non_const_buffer_sizes[1:] for plan in program.executorch_program.execution_plan}
    planned = {method: planned[method] for method in exported}
    took = {"seconds": seconds, "cpu_seconds": spent, "peak_bytes": peak, "before_bytes": before}
    return program, {"planned_bytes": planned, **took}
