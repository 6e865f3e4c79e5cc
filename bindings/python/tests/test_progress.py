"""How far long work is, and its end by Ctrl-C."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import rushlight

torch = pytest.importorskip("torch")
STAGES = ("calibrating", "rounding weights", "comparing", "compiling", "writing")
SMALL = pathlib.Path(__file__).resolve().parents[3] / "examples" / "cortex-m" / "digits.pt2"


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Layers that take a while to quantize and to write."""
    file = tmp_path_factory.mktemp("progress") / "large.pt2"
    layers = [torch.nn.Linear(1024, 1024) for _ in range(6)]
    torch.export.save(torch.export.export(torch.nn.Sequential(*layers), (torch.zeros(8, 1024),)), file)
    return file


def test_stages_of_a_quantization(large, tmp_path):
    seen = []
    program = rushlight.compile(
        large,
        quantize=rushlight.Quantization("8da4w", weights="gptq"),
        calibration=[(torch.randn(8, 1024),)] * 4,
        progress=lambda *report: seen.append(report),
    )
    size = program.save(tmp_path / "out.pte")
    assert all(0 <= done <= total for _, done, total in seen), seen
    stages = list(dict.fromkeys(stage for stage, _, _ in seen))
    # Of stages that take less time than lies between two reports some are not told.
    assert "rounding weights" in stages, stages
    # Packing lies between two reports of the compilation, of which the first may not be told.
    stages = [stage for stage in stages if stage != "packing weights"]
    assert [stage for stage in STAGES if stage in stages] == stages
    assert size == (tmp_path / "out.pte").stat().st_size
    # The last report of all is that of the end.
    assert seen[-1][0] == "writing" and seen[-1][1] == seen[-1][2], seen[-1]


def test_what_progress_may_be(large, capfd):
    for wrong in ("bar", 3):
        with pytest.raises(TypeError, match=r"progress: expected None, True, False or a function.*got"):
            rushlight.compile(large, progress=wrong)
    for silent in (None, False):
        rushlight.compile(large, backend="cpu", progress=silent).buffer
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("stream", ["None", "open(os.devnull)", "types.SimpleNamespace(flush=lambda: None)"])
def test_standard_error_may_be_closed_or_none(stream):
    script = f"""
import os, sys, types, rushlight
stream = {stream}
if hasattr(stream, "close"):
    stream.close()
sys.stderr = stream
print(len(rushlight.compile({os.fspath(SMALL)!r}).buffer))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and int(done.stdout) > 0, done


def test_a_bar_where_it_is_asked_for(large, capfd):
    quantization = rushlight.Quantization("8da4w", weights="gptq")
    rushlight.compile(large, quantize=quantization, calibration=[(torch.randn(8, 1024),)] * 8, progress=True)
    text = capfd.readouterr().err
    assert "rounding weights" in text
    assert "█" in text
    # The line is cleared.
    assert text.endswith(" \r")


def test_a_stage_that_cannot_say_how_far_it_is(capfd):
    seen = []
    rushlight.export(torch.nn.ReLU(), (torch.zeros(2),), progress=lambda *report: seen.append(report))
    assert seen[:2] == [("exporting", 0, 1), ("exporting", 1, 1)]
    rushlight.export(torch.nn.ReLU(), (torch.zeros(2),), progress=True)
    text = capfd.readouterr().err
    assert "exporting" in text
    assert text.endswith(" \r")


def test_what_a_report_raises_ends_the_work(large, tmp_path):
    def stop(stage, done, total):
        raise RuntimeError(f"enough of {stage}")

    quantization = rushlight.Quantization("8da4w", weights="gptq")
    with pytest.raises(RuntimeError, match="enough of"):
        rushlight.compile(large, quantize=quantization, calibration=[(torch.randn(8, 1024),)] * 8, progress=stop)


WORK = {
    "compile": "rushlight.compile(large, backend='cpu').save(out)",
    "quantize": "rushlight.compile(large, quantize='int8', calibration=[(x,)] * 4000).save(out)",
    "gptq": "rushlight.compile(large, quantize=rushlight.Quantization('8da4w', weights='gptq'), calibration=[(x,)]).save(out)",
    "compare": "rushlight.compare(large, program, (x,))",
    "run": "module(x)",
    "lower": "rushlight.load(program.buffer, lower='cpu')(x)",
}


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no signals of this kind")
def test_ctrl_c(large, tmp_path):
    """Signals at many points of the work: each ends it, and what was in the folder stays."""
    (tmp_path / "out.pte").write_bytes(b"before")
    # One process for all kinds of work, as PyTorch takes seconds to import.
    script = textwrap.dedent(f"""
        import os, signal, sys, threading, time
        import torch, rushlight
        # A shell lets its background jobs ignore interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        large, out, x = {os.fspath(large)!r}, {os.fspath(tmp_path / "out.pte")!r}, torch.randn(8, 1024)
        program = rushlight.compile(large)
        module = rushlight.load(program.buffer)

        def work(code):
            # Until the signal comes.
            while True:
                exec(code)

        for name, text in {WORK!r}.items():
            code, slowest = compile(text, name, "exec"), 0
            for attempt in range(8):
                sent = []
                timer = threading.Timer(0.05 + 0.13 * attempt, lambda: (sent.append(time.monotonic()), os.kill(os.getpid(), {int(signal.SIGINT)})))
                timer.start()
                try:
                    work(code)
                except KeyboardInterrupt:
                    slowest = max(slowest, time.monotonic() - sent[0])
                timer.join()
            # Works that were given up have ended.
            time.sleep(1)
            left = [file for file in os.listdir(os.path.dirname(out)) if file != "out.pte"]
            assert not left, (name, left)
            print(name, slowest)
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    slowest = dict(line.split() for line in done.stdout.splitlines())
    assert set(slowest) == set(WORK)
    # 0.2 on an idle machine; here others may run.
    assert all(float(seconds) < 2 for seconds in slowest.values()), slowest
    # Either it was never complete, or it is whole.
    content = (tmp_path / "out.pte").read_bytes()
    assert content == b"before" or rushlight.load(content).method_names == ["forward"]


def test_lowering_that_a_signal_ended_begins_again(large):
    class Late(Exception):
        pass

    def late(*_):
        raise Late

    program = rushlight.compile(large).buffer
    x = torch.randn(8, 1024)
    expected = rushlight.load(program, lower="off")(x)
    before = signal.signal(signal.SIGINT, late)
    ended = 0
    try:
        for attempt in range(20):
            module = rushlight.load(program, lower="cpu")
            timer = threading.Timer(0.001 * (1 + attempt), signal.raise_signal, [signal.SIGINT])
            reported = False
            with pytest.raises(Late):
                timer.start()
                module.report
                reported = True
                timer.join()
                # The handler has run before this ends.
                time.sleep(1)
            ended += not reported
            timer.join()
            assert module.report.lowered
            torch.testing.assert_close(module(x), expected, rtol=1e-4, atol=1e-4)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended
