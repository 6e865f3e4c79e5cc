"""Answers: whole, piece by piece, and for an event loop."""

import asyncio
import warnings
from typing import NamedTuple


class Usage(NamedTuple):
    """Token counts and times of an answer."""

    # Tokens of the prompt, without those that the session already had.
    prompt_tokens: int
    completion_tokens: int
    # Seconds of reading the prompt, and of generating the answer.
    prefill_seconds: float
    decode_seconds: float
    # Tokens that `speculate` drafted, and those of them in the answer.
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def total_tokens(self):
        return self.prompt_tokens + self.completion_tokens

    @property
    def seconds(self):
        return self.prefill_seconds + self.decode_seconds


class TokenLogprob(NamedTuple):
    """The log probability of a token, by the probabilities of the model before sampling changes them."""

    token: int
    # The natural logarithm of its probability.
    logprob: float
    # The most likely tokens with their log probabilities, the most likely first.
    top: dict


class Completion(NamedTuple):
    """An answer."""

    text: str
    # The tokens, without the one that ended the answer.
    tokens: list
    # "stop" if the model or a stop string ended it, "length" if it has the maximum length or the context is full, and
    # "cancelled" if the caller ended it.
    finish_reason: str
    usage: Usage
    # One for each token; None without the option `logprobs`.
    logprobs: list


class Answer:
    """An answer that is generated while it is read. A piece of text takes one or more steps of the model."""

    def __init__(self, start, lock, with_logprobs=False):
        # Makes the generator of the core, and the function for its session at the end.
        self._start = start
        # The lock of the session. A stream holds it only while it reads the prompt: another thread may read its next piece.
        self._lock = lock
        self._generator = None
        self._text = []
        self._tokens = []
        self._logprobs = [] if with_logprobs else None
        self._is_over = False
        self._usage = (0, 0, 0.0, 0.0, 0, 0, "cancelled", None)

    def _begin(self):
        """Reads the prompt, unless it was read before."""
        if self._generator is None and not self._is_over:
            try:
                with self._lock:
                    generator, self._release = self._start()
            except BaseException:
                self._is_over = True
                raise
            # Another thread may have ended the answer meanwhile.
            if not self._is_over:
                self._generator = generator

    def _step(self):
        """Returns the next text; None at the end of the answer."""
        self._begin()
        # Another thread may end the answer meanwhile.
        while (generator := self._generator) is not None:
            try:
                step = generator.step()
            except BaseException:
                # The state of the session is unknown.
                self._is_over, self._generator = True, None
                raise
            if step is None:
                self.close()
                break
            text, token, score = step
            if token is not None:
                self._tokens.append(token)
            if score is not None and self._logprobs is not None:
                self._logprobs.append(TokenLogprob(token, score[0], dict(score[1])))
            if text:
                self._text.append(text)
                return text
        return None

    def _finish(self):
        """Generates the whole answer, before anything else happens to its session."""
        with self._lock:
            while self._step() is not None:
                pass
        return self.completion

    def close(self):
        """Ends the answer, and keeps its text so far."""
        self._is_over = True
        generator, self._generator = self._generator, None
        if generator is not None:
            self._usage = generator.usage()
            self._release()
            if (reason := self._usage[-1]) is not None:
                warnings.warn(f"tokens are not guessed: {reason}", RuntimeWarning, stacklevel=2)

    @property
    def completion(self):
        """The answer so far. It is "cancelled" until the end."""
        generator = self._generator
        *counts, reason, _ = self._usage if generator is None else generator.usage()
        return Completion("".join(self._text), list(self._tokens), reason, Usage(*counts), self._logprobs)

    def __repr__(self):
        return f"rushlight.llm.{type(self).__name__}({self.completion.text!r})"


class Stream(Answer):
    """An iterator over the pieces of an answer's text. `close`, or the end of a `with`, ends the answer."""

    def __iter__(self):
        return self

    def __next__(self):
        text = self._step()
        if text is None:
            raise StopIteration
        return text

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class AsyncStream(Answer):
    """An asynchronous iterator over the pieces of an answer's text. `await` returns the whole answer as a `Completion`.

    The model runs in threads of `asyncio.to_thread`. Cancelling the task ends the answer after the current step.
    """

    def __aiter__(self):
        return self

    async def __anext__(self):
        text = await self._next()
        if text is None:
            raise StopAsyncIteration
        return text

    async def _next(self):
        try:
            return await asyncio.to_thread(self._step)
        except asyncio.CancelledError:
            self.close()
            raise

    async def _all(self):
        try:
            return await asyncio.to_thread(self._finish)
        except asyncio.CancelledError:
            self.close()
            raise

    def __await__(self):
        return self._all().__await__()

    async def aclose(self):
        """Ends the answer, and keeps its text so far."""
        self.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.close()
