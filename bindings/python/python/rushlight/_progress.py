"""The progress of long work: a bar on a terminal, or calls of a function."""

import contextlib
import sys
import time

# Minimum seconds of work before a bar is shown.
_MIN_SECONDS = 0.5
_WIDTH = 30


class Progress:
    """The argument `progress=` of `rushlight.compile`: None (a bar if standard error is a terminal), True (a bar), False (nothing),
    or a function of a stage, the work done, and the total. `report` is the function that the core calls, or None.
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
        """Reports a stage without a measure of its progress."""
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
        # A stage of one unit sends no other report before its end.
        if total > 1 and time.monotonic() - self._began < _MIN_SECONDS:
            return
        share = done / total if total else 0.0
        full = round(share * _WIDTH)
        self._write(f"{stage:<18} {'█' * full}{'░' * (_WIDTH - full)} {share:4.0%}")

    def _write(self, line):
        # Clears the rest of a longer line.
        print("\r" + line.ljust(self._shown), end="\r" if not line else "", file=sys.stderr, flush=True)
        self._shown = len(line)


def _is_terminal(stream):
    """Returns True if a stream is a terminal; False if it is None, closed, or of another class."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False
