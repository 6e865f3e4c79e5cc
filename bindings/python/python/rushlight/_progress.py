"""How far long work is: a bar on a terminal, or a function of the caller's."""

import contextlib
import sys
import time

# Work that takes less shows no bar, in seconds.
_WORTH_A_BAR = 0.5
_WIDTH = 30


class Progress:
    """What `progress=` of `rushlight.compile` stands for: None (a bar where standard error is a terminal), True (a bar), False
    (nothing), or a function of a stage, how much of it is done, and the total. `report` is what the core calls, or None.
    """

    __slots__ = ("_began", "_shown", "report")

    def __init__(self, progress):
        if progress is not None and not isinstance(progress, bool) and not callable(progress):
            raise TypeError(
                "progress: expected None, True, False or a function of (stage, done, total), "
                f"got {type(progress).__name__}"
            )
        if progress is None:
            progress = _is_terminal(sys.stderr)
        self._began = time.monotonic()
        self._shown = 0
        self.report = self._draw if progress is True else progress or None

    def __call__(self, stage, done, total):
        if self.report is not None:
            self.report(stage, done, total)

    @contextlib.contextmanager
    def stage(self, name):
        """A stage that cannot say how far it is."""
        with self:
            self(name, 0, 1)
            yield
            self(name, 1, 1)

    def __enter__(self):
        self._began = time.monotonic()
        return self

    def __exit__(self, *_):
        if self._shown:
            self._write("")

    def _draw(self, stage, done, total):
        # A stage of one unit has no later report before its end.
        if total > 1 and time.monotonic() - self._began < _WORTH_A_BAR:
            return
        share = done / total if total else 0.0
        full = round(share * _WIDTH)
        self._write(f"{stage:<18} {'█' * full}{'░' * (_WIDTH - full)} {share:4.0%}")

    def _write(self, line):
        # What is left of a longer line goes.
        print("\r" + line.ljust(self._shown), end="\r" if not line else "", file=sys.stderr, flush=True)
        self._shown = len(line)


def _is_terminal(stream):
    """Whether a stream is a terminal: one that there is not, that is closed, or that is of another class, is none."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False
