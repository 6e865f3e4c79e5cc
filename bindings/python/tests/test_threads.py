"""Threads, calls back into the binding, forks and the interpreter's end: nothing blocks for ever.

Each case is a script in a process of its own, which a limit on its time ends."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]

# What the scripts begin with. `twice` is a program that calls `example::twice` and adds 1, `digits` one for the CPU.
PRELUDE = f"""
import array, os, sys, threading, time
import rushlight

ROOT = {str(ROOT)!r}

def twice():
    return rushlight.load(rushlight.compile(ROOT + "/tests/corpus/pt2/custom_operator.pt2").buffer)

def digits(**options):
    return rushlight.load(ROOT + "/examples/cortex-m/digits.pte", lower="cpu", **options)

IMAGE = memoryview(array.array("f", [0.5] * 64)).cast("B").cast("f", [1, 1, 8, 8])
X = array.array("f", [1, 2, 3, 4])

def double(x):
    return array.array("f", [2 * v for v in x.tolist()])

def thread(target):
    made = threading.Thread(target=target, daemon=True)
    made.start()
    return made
"""


# Prints where all threads are and ends the process. A child of a fork would wait for the thread that does.
WATCHED = "import faulthandler; faulthandler.dump_traceback_later(50, exit=True)"


def run(script, code=0, watch=WATCHED):
    """Runs a script, which must end by itself, and returns what it printed."""
    command = [sys.executable, "-c", PRELUDE + watch + "\n" + textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_type_may_call_the_module_when_it_is_looked_at():
    run("""
        module, calls = digits(), []

        class Meta(type):
            def __getattr__(cls, name):
                calls.append(name)
                if len(calls) < 3:
                    module(IMAGE)
                    try:
                        module(Array())
                    except TypeError:
                        pass
                raise AttributeError(name)

        class Array(metaclass=Meta):
            pass

        try:
            module(Array())
        except TypeError as error:
            assert "input 0" in str(error), error
        else:
            raise AssertionError("an object that is no array was accepted")
        assert calls
    """)


def test_a_type_may_wait_for_another_thread_when_it_is_looked_at():
    run("""
        module, waiting, done = digits(), threading.Event(), threading.Event()

        class Meta(type):
            def __getattr__(cls, name):
                waiting.set()
                assert done.wait(20), "the other thread did not get through"
                raise AttributeError(name)

        class Array(metaclass=Meta):
            pass

        class Other:
            pass

        def other():
            waiting.wait()
            for value in (IMAGE, Other()):
                try:
                    module(value)
                except TypeError:
                    pass
            done.set()

        started = thread(other)
        try:
            module(Array())
        except TypeError:
            pass
        started.join()
        assert done.is_set()
    """)


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "SystemExit", "ZeroDivisionError"])
def test_what_a_type_raises_is_not_swallowed(raised):
    run(f"""
        class Meta(type):
            def __getattr__(cls, name):
                raise {raised}(name)

        class Array(metaclass=Meta):
            pass

        try:
            digits()(Array())
        except {raised}:
            pass
        else:
            raise AssertionError
    """)


def test_types_that_go_away_may_call_the_module():
    run("""
        import torch, gc
        module = digits()

        class Guard:
            def __del__(self):
                module(IMAGE)

        for _ in range(3):
            # Offers an exchange API, and is dropped when another type does.
            class Array(torch.Tensor):
                guard = Guard()

            module(torch.full((1, 1, 8, 8), 0.5).as_subclass(Array))
            del Array
            gc.collect()
            module(torch.full((1, 1, 8, 8), 0.5))
    """)


def test_exceptions_may_call_the_module_when_they_go_away():
    run("""
        import gc
        module, plain = twice(), digits()

        class Loud(Exception):
            left = 20

            def __del__(self):
                plain(IMAGE)
                Loud.left -= 1
                if Loud.left < 0:
                    return
                try:
                    module(X)
                except Exception:
                    pass

        def fails(x):
            raise Loud("on purpose")

        rushlight.register_op("example::twice", fails)
        for _ in range(5):
            try:
                module(X)
            except rushlight.Error as error:
                assert isinstance(error.__cause__, Loud)
            gc.collect()
    """)


def test_a_cause_belongs_to_its_own_call():
    run("""
        module, other = twice(), digits()

        def fails(x):
            try:
                other(X)
            except rushlight.Error:
                pass
            raise ValueError("on purpose")

        rushlight.register_op("example::twice", fails)
        for _ in range(2):
            try:
                module(X)
            except rushlight.Error as error:
                assert isinstance(error.__cause__, ValueError), error.__cause__
            try:
                other(X)
            except rushlight.Error as error:
                assert error.__cause__ is None, error.__cause__
    """)


def test_functions_that_are_replaced_may_register():
    run("""
        class Function:
            def __call__(self, x):
                return double(x)

            def __del__(self):
                rushlight.register_op("example::thrice", double)
                module(X)

        module = None
        rushlight.register_op("example::twice", Function(), inputs=1)
        module = twice()
        module(X)
        rushlight.register_op("example::twice", double)
        assert module(X).tolist() == [3, 5, 7, 9]
    """)


def test_models_that_call_each_other_from_two_threads():
    run("""
        models = twice(), twice()
        barrier, results = threading.Barrier(2), []
        mine = threading.local()

        def crossed(x):
            if getattr(mine, "inside", False):
                return double(x)
            mine.inside = True
            try:
                barrier.wait(20)
                return models[1 - mine.index](X)
            finally:
                mine.inside = False

        rushlight.register_op("example::twice", crossed)

        def work(index):
            mine.index = index
            try:
                results.append(models[index](X).tolist())
            except rushlight.Error as error:
                assert "in use" in str(error.__cause__), error.__cause__
                results.append(None)

        threads = [thread(lambda index=index: work(index)) for index in range(2)]
        for started in threads:
            started.join(40)
        # One of the two is told; what it waited for goes on.
        assert len(results) == 2 and None in results, results
    """)


def test_a_model_that_calls_itself_is_told():
    run("""
        module = twice()
        rushlight.register_op("example::twice", lambda x: module(x))
        try:
            module(X)
        except rushlight.Error as error:
            assert isinstance(error.__cause__, RuntimeError) and "in use" in str(error.__cause__), error.__cause__
        else:
            raise AssertionError
    """)


def test_functions_wait_for_models_that_others_only_use():
    run("""
        outer, inner = twice(), twice()
        running, go = threading.Event(), threading.Event()

        def kernel(x):
            if threading.current_thread() is threading.main_thread():
                return inner(X) if depth.append(1) or len(depth) == 1 else double(x)
            running.set()
            assert go.wait(20)
            return double(x)

        depth = []
        rushlight.register_op("example::twice", kernel)
        started = thread(lambda: inner(X))
        running.wait()
        threading.Timer(0.5, go.set).start()
        assert outer(X).tolist() == [4, 6, 8, 10]
        started.join()
    """)


def test_threads_take_turns():
    run("""
        module, errors = twice(), []
        rushlight.register_op("example::twice", double)

        def work():
            try:
                for _ in range(200):
                    assert module(X).tolist() == [3, 5, 7, 9]
            except BaseException as error:
                errors.append(error)

        threads = [thread(work) for _ in range(8)]
        for started in threads:
            started.join()
        assert not errors, errors
    """)


def test_waiting_for_a_model_can_be_interrupted():
    run("""
        import signal
        # A shell lets its background jobs ignore interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        module, running, go = twice(), threading.Event(), threading.Event()

        def blocks(x):
            running.set()
            go.wait(30)
            return double(x)

        rushlight.register_op("example::twice", blocks)
        started = thread(lambda: module(X))
        running.wait()
        threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT)).start()
        began = time.monotonic()
        try:
            module(X)
        except KeyboardInterrupt:
            assert time.monotonic() - began < 10
        else:
            raise AssertionError("was not interrupted")
        go.set()
        started.join()
        assert module(X).tolist() == [3, 5, 7, 9]
    """)


# A child of a fork that runs `child` and must end with exit code 0 within 20 seconds.
FORK = """
def forked(child):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0, status
            return
        time.sleep(0.02)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise AssertionError("the child blocks")
"""


def forking(script):
    run(script, watch="")


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@needs_fork
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_child_runs_models_of_its_parent(threads):
    forking(FORK + textwrap.dedent(f"""
        module = digits(threads={threads})
        expected = module(IMAGE).tolist()

        def child():
            for _ in range(20):
                assert module(IMAGE).tolist() == expected
            forked(lambda: module(IMAGE))
            assert digits(threads={threads})(IMAGE).tolist() == expected

        for _ in range(3):
            forked(child)
            assert module(IMAGE).tolist() == expected
    """))


@needs_fork
def test_a_child_is_told_of_models_that_were_running():
    forking(FORK + textwrap.dedent("""
        module, other, cpu = twice(), twice(), digits(threads=2)
        running, go = threading.Event(), threading.Event()

        def blocks(x):
            running.set()
            go.wait(30)
            return double(x)

        rushlight.register_op("example::twice", blocks)
        started = thread(lambda: module(X))
        running.wait()

        def child():
            go.set()
            for call in (lambda: module(X), lambda: module.meta(), lambda: module.method_names):
                try:
                    call()
                except RuntimeError as error:
                    assert "fork" in str(error) and "load" in str(error), error
                else:
                    raise AssertionError("a model that another thread was in the middle of was used")
            assert other(X).tolist() == [3, 5, 7, 9]
            assert twice()(X).tolist() == [3, 5, 7, 9]
            cpu(IMAGE)

        forked(child)
        go.set()
        started.join()
        assert module(X).tolist() == [3, 5, 7, 9]
    """))


@needs_fork
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_children_while_threads_compute(threads):
    forking(FORK + textwrap.dedent(f"""
        busy, idle = digits(threads={threads}), digits(threads={threads})
        expected, stop = idle(IMAGE).tolist(), threading.Event()

        def compute():
            while not stop.is_set():
                busy(IMAGE)

        workers = [thread(compute) for _ in range(2)]

        def child():
            assert idle(IMAGE).tolist() == expected
            try:
                assert busy(IMAGE).tolist() == expected
            except RuntimeError as error:
                assert "fork" in str(error), error
            made = digits(threads={threads})
            assert made(IMAGE).tolist() == expected
            path = ROOT + "/tests/corpus/pt2/torch_2.8.pt2"
            assert rushlight.compile(path).buffer

        for _ in range(20):
            forked(child)
        stop.set()
        for worker in workers:
            worker.join()
    """))


@needs_fork
def test_a_child_ends_with_models_of_its_parent():
    # The interpreter of the child drops them; whoever joined threads that it does not have would wait for ever.
    forking("""
        import multiprocessing
        module = digits(threads=3)
        module(IMAGE)
        stop = threading.Event()

        def compute():
            while not stop.is_set():
                module(IMAGE)

        worker = thread(compute)

        def child(queue):
            global module
            del module
            queue.put(digits(threads=2)(IMAGE).tolist())

        context = multiprocessing.get_context("fork")
        for _ in range(5):
            queue = context.Queue()
            process = context.Process(target=child, args=(queue,))
            process.start()
            queue.get(timeout=20)
            process.join(20)
            assert process.exitcode == 0, process.exitcode
        stop.set()
        worker.join()
    """)


@needs_fork
def test_a_child_that_exits_as_usual():
    forking("""
        module = digits(threads=3)
        module(IMAGE)
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        end = time.monotonic() + 20
        while not os.waitpid(pid, os.WNOHANG)[0]:
            assert time.monotonic() < end, "the child blocks"
            time.sleep(0.02)
    """)


@pytest.mark.parametrize("raised", ["SystemExit(3)", "KeyboardInterrupt()", "GeneratorExit()"])
def test_exits_inside_of_a_function_are_not_swallowed(raised):
    run(f"""
        module = twice()

        def leaves(x):
            raise {raised}

        rushlight.register_op("example::twice", leaves)
        for _ in range(3):
            try:
                module(X)
            except BaseException as error:
                assert type(error) is type({raised}), error
        rushlight.register_op("example::twice", double)
        assert module(X).tolist() == [3, 5, 7, 9]
    """)


def test_sys_exit_in_a_function_ends_the_process():
    run(
        """
        module = twice()
        rushlight.register_op("example::twice", lambda x: sys.exit(7))
        module(X)
        """,
        code=7,
    )


@pytest.mark.parametrize("inside", ["time.sleep(0.001)", "pass", "event.wait(100)"])
def test_the_interpreter_ends_while_threads_run(inside):
    run(f"""
        module, cpu, event = twice(), digits(threads=2), threading.Event()

        def kernel(x):
            {inside}
            return double(x)

        rushlight.register_op("example::twice", kernel)

        def forever(call):
            while True:
                call()

        for _ in range(3):
            thread(lambda: forever(lambda: module(X)))
            thread(lambda: forever(lambda: cpu(IMAGE)))
        time.sleep(0.5)
    """)


def test_a_soak_of_some_seconds():
    command = [sys.executable, str(pathlib.Path(__file__).with_name("soak.py")), "--seconds", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
