"""Operators and backends in Python that raise, block, call back and exit, from several threads, for a while.

    python bindings/python/tests/soak.py --seconds 600

A deadlock ends the process with where all threads are. Ends with exit code 1 if a result was wrong, an error was not one that was
asked for, or memory grew. Needs neither torch nor numpy.
"""

import argparse
import array
import faulthandler
import gc
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
from collections import Counter

import rushlight

ROOT = pathlib.Path(__file__).resolve().parents[3]
CUSTOM = rushlight.compile(ROOT / "tests" / "corpus" / "pt2" / "custom_operator.pt2").buffer
MLP = ROOT / "tests" / "corpus" / "pt2" / "torch_2.8.pt2"
DIGITS = (ROOT / "examples" / "cortex-m" / "digits.pte").read_bytes()

X = array.array("f", [1, 2, 3, 4])
PAIR = memoryview(array.array("f", [0.5, -2.0])).cast("B").cast("f", [1, 2])
IMAGE = memoryview(array.array("f", [0.5] * 64)).cast("B").cast("f", [1, 1, 8, 8])

# How long nothing may end before it counts as a deadlock.
PATIENCE = 60
counts = Counter()
mine = threading.local()


class Asked(Exception):
    """What operators and backends raise, because they were asked to."""

    def __del__(self):
        # The end of an exception may use what raised it.
        if random.random() < 0.05 and not sys.is_finalizing():
            shared.digits(IMAGE)


def double(x):
    return array.array("f", [2 * v for v in x.tolist()])


def behave(answer):
    """Does one of all that user code does in the middle of a run, then answers."""
    depth = getattr(mine, "depth", 0)
    behaviour = random.choice(BEHAVIOURS) if depth < 3 else plain
    mine.depth = depth + 1
    counts[behaviour.__name__] += 1
    try:
        behaviour()
        return answer()
    finally:
        mine.depth = depth


def plain():
    pass


def raises():
    raise Asked("on purpose")


def exits():
    sys.exit(3)


def interrupted():
    raise KeyboardInterrupt


def blocks():
    time.sleep(random.random() * 0.003)


def waits_for_a_thread():
    def work():
        # It may not wait for a model that whoever waits for it has.
        mine.depth = 3
        expect(rushlight.load(CUSTOM)(X).tolist() == [3, 5, 7, 9], "a thread's result")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def calls_itself():
    module = getattr(mine, "module", None)
    if module is not None:
        try:
            module(X)
        except RuntimeError as error:
            expect("in use" in str(error) or isinstance(error, rushlight.Error), error)


def calls_others():
    shared.any_custom()(X)


def calls_the_cpu():
    expect(shared.digits(IMAGE).tolist() == shared.logits, "the digits' logits")


def registers():
    rushlight.register_op("example::twice", kernel)


def registers_what_registers():
    class Function:
        def __call__(self, x):
            return kernel(x)

        def __del__(self):
            rushlight.register_op("example::thrice", double)

    rushlight.register_op("example::twice", Function(), inputs=1)
    rushlight.register_op("example::twice", kernel)


def loads():
    module = rushlight.load(CUSTOM, lower=random.choice(["off", "auto", "cpu"]))
    mine.module, before = module, getattr(mine, "module", None)
    try:
        module(X)
    finally:
        mine.module = before


def compiles():
    program = rushlight.compile(MLP, backend=Soaked())
    program(PAIR)


def collects():
    gc.collect()


BEHAVIOURS = [
    plain,
    plain,
    plain,
    plain,
    raises,
    exits,
    interrupted,
    blocks,
    waits_for_a_thread,
    calls_itself,
    calls_others,
    calls_the_cpu,
    registers,
    registers_what_registers,
    loads,
    compiles,
    collects,
]

# What may come out of a run whose user code does all that.
ALLOWED = (Asked, SystemExit, KeyboardInterrupt, rushlight.Error, RuntimeError)


def kernel(x):
    return behave(lambda: double(x))


class Soaked:
    """Both halves of a backend that adds a constant, and misbehaves."""

    name = "Soaked"
    num_outputs = 1

    def partition(self, node):
        return behave(lambda: node.op == "aten::add.Tensor" and node.args["other"].is_constant)

    def preprocess(self, part):
        (constant,) = part.constants.values()
        return behave(constant.tobytes)

    def init(self, payload):
        delegate = Soaked()
        delegate.constant = memoryview(payload.data).cast("f").tolist()
        return behave(lambda: delegate)

    def execute(self, inputs):
        (x,) = inputs
        sums = array.array("f", [a + b for a, b in zip(x.tolist()[0], self.constant)])
        return behave(lambda: memoryview(sums).cast("B").cast("f", x.shape))


class Odd(type):
    """A metaclass that calls a module when its classes are looked at."""

    def __getattr__(cls, name):
        if random.random() < 0.2:
            shared.digits(IMAGE)
        raise AttributeError(name)


class Array(metaclass=Odd):
    """No array."""


class Shared:
    """Models that all threads use."""

    def __init__(self):
        rushlight.register_op("example::twice", kernel)
        rushlight.register_backend(Soaked())
        self.digits = rushlight.load(DIGITS, lower="cpu", threads=2)
        self.logits = self.digits(IMAGE).tolist()
        self.custom = [rushlight.load(CUSTOM, lower=lower) for lower in ("off", "auto", "cpu", "off")]

    def any_custom(self):
        return random.choice(self.custom)


wrong = []


def expect(is_right, what):
    if not is_right:
        wrong.append(repr(what))


def one_run():
    """One use of the library by a thread, with a result to check."""
    dice = random.random()
    if dice < 0.1:
        calls_the_cpu()
    elif dice < 0.15:
        try:
            shared.digits(Array())
        except TypeError:
            return
        expect(False, "an object that is no array was accepted")
    elif dice < 0.2:
        compiles()
    else:
        module = shared.any_custom()
        mine.module, before = module, getattr(mine, "module", None)
        try:
            expect(module(X).tolist() == [3, 5, 7, 9], "the custom operator's result")
        finally:
            mine.module = before


def check(error):
    """Whether an error is one that was asked for."""
    if isinstance(error, (Asked, SystemExit, KeyboardInterrupt)):
        counts[type(error).__name__] += 1
        return
    cause, known = error, ("in use", "missing", "not in this build", "not registered")
    while cause is not None:
        if isinstance(cause, (Asked, SystemExit, KeyboardInterrupt)) or any(word in str(cause) for word in known):
            counts["explained errors"] += 1
            return
        cause = cause.__cause__ or cause.__context__
    expect(False, error)


def work(end):
    while time.monotonic() < end:
        try:
            one_run()
        except ALLOWED as error:
            check(error)
        except BaseException as error:
            expect(False, error)
        counts["runs"] += 1
        mine.depth, mine.module = 0, None


def short_lived(end):
    """Threads that end, some by an exit in the middle of an operator."""
    while time.monotonic() < end:
        thread = threading.Thread(target=work, args=(time.monotonic() + 0.2,))
        thread.start()
        thread.join()
        counts["threads"] += 1


ENDINGS = """
import sys, threading, array, random
import rushlight
program = open(sys.argv[1], "rb").read()
X = array.array("f", [1, 2, 3, 4])
module = rushlight.load(program)
ready = threading.Event()

def kernel(x):
    ready.set()
    for _ in range(random.randrange(2000)):
        pass
    return array.array("f", [2 * v for v in x.tolist()])

def forever():
    while True:
        module(X)

rushlight.register_op("example::twice", kernel)
for _ in range(3):
    threading.Thread(target=forever, daemon=True).start()
ready.wait()
sys.exit(5)
"""


def endings(end, path):
    """Processes whose interpreter ends while threads run."""
    while time.monotonic() < end:
        done = subprocess.run([sys.executable, "-c", ENDINGS, path], capture_output=True, text=True, timeout=PATIENCE)
        expect(done.returncode == 5, f"exit code {done.returncode} of a process that ended: {done.stderr}")
        counts["processes"] += 1
        time.sleep(0.5)


def resident():
    """Megabytes of this process, where the system says it."""
    try:
        for line in pathlib.Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def main():
    global shared
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    sys.unraisablehook = lambda hook: expect(isinstance(hook.exc_value, ALLOWED), hook.exc_value)
    rushlight.register_op("example::twice", double)
    shared = Shared()

    start = time.monotonic()
    end = start + arguments.seconds
    path = f"/tmp/rushlight-soak-{os.getpid()}.pte"
    pathlib.Path(path).write_bytes(CUSTOM)
    threads = [threading.Thread(target=work, args=(end,)) for _ in range(arguments.threads)]
    threads.append(threading.Thread(target=short_lived, args=(end,)))
    threads.append(threading.Thread(target=endings, args=(end, path)))
    for thread in threads:
        thread.start()

    # Memory once everything has run, and at the end.
    warm, sizes, runs = None, [], -1
    try:
        while any(thread.is_alive() for thread in threads):
            if counts["runs"] > runs:
                runs = counts["runs"]
                faulthandler.dump_traceback_later(PATIENCE, exit=True)
            time.sleep(min(1.0, arguments.seconds / 20))
            sizes.append(resident())
            if warm is None and time.monotonic() - start > arguments.seconds * 0.3:
                warm = len(sizes) - 1
    finally:
        os.unlink(path)
    faulthandler.cancel_dump_traceback_later()
    gc.collect()

    print(f"{time.monotonic() - start:.0f} s, {counts.pop('runs')} runs of {arguments.threads} threads and more")
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    before, after = max(sizes[warm or 0 : (warm or 0) + 5]), min(sizes[-5:])
    print(f"resident {sizes[0]:.1f} MB at first, {before:.1f} MB after 30 % of the time, {after:.1f} MB at the end")
    # A heap that is used by threads at random is never quite the same.
    if arguments.seconds >= 60 and after > before * 1.05 + 2:
        wrong.append(f"memory grew from {before:.1f} to {after:.1f} MB")
    for what in wrong[:20]:
        print("WRONG:", what)
    print(f"{len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
