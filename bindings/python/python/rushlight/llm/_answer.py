"""Answers: whole, piece by piece, and without blocking an event loop."""

import asyncio
import warnings
from typing import NamedTuple


class Usage(NamedTuple):
    """Token counts and times of an answer."""

    # Without those that the session had already.
    prompt_tokens: int
    completion_tokens: int
    # Time in which the model read the prompt, and the tokens of the answer.
    prefill_seconds: float
    decode_seconds: float
    # Tokens that were guessed, with `speculate`, and those of them that the answer has.
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def total_tokens(self):
        return self.prompt_tokens + self.completion_tokens

    @property
    def seconds(self):
        return self.prefill_seconds + self.decode_seconds


class TokenLogprob(NamedTuple):
    """How likely a token was, by the probabilities of the model before sampling changed them."""

    token: int
    # The natural logarithm of its probability.
    logprob: float
    # The most likely tokens with theirs, the most likely first.
    top: dict


class Completion(NamedTuple):
    """An answer."""

    text: str
    # Without the one that ended it.
    tokens: list
    # "stop" if the model or a stop string ended it, "length" if it is as long as was asked for or the context is full, and
    # "cancelled" if the caller ended it.
    finish_reason: str
    usage: Usage
    # One a token, or None if they were not asked for.
    logprobs: list


class Answer:
    """An answer that is generated as it is asked for: each piece of text takes one or more steps of the model."""

    def __init__(self, start, lock, with_logprobs=False):
        # Makes the generator of the core, and what to do with its session in the end.
        self._start = start
        # Of the session. A stream has it only while it reads the prompt: another thread may take its next piece.
        self._lock = lock
        self._generator = None
        self._text = []
        self._tokens = []
        self._logprobs = [] if with_logprobs else None
        self._is_over = False
        self._usage = (0, 0, 0.0, 0.0, 0, 0, "cancelled", None)

    def _begin(self):
        """Reads the prompt, if that was not done."""
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
        """The next text; None when the answer is over."""
        self._begin()
        # Another thread may end the answer in the middle.
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
        """The whole answer, before anything else happens to its session."""
        with self._lock:
            while self._step() is not None:
                pass
        return self.completion

    def close(self):
        """Ends the answer. What there is of it stays."""
        self._is_over = True
        generator, self._generator = self._generator, None
        if generator is not None:
            self._usage = generator.usage()
            self._release()
            if (reason := self._usage[-1]) is not None:
                warnings.warn(f"tokens are not guessed: {reason}", RuntimeWarning, stacklevel=2)

    @property
    def completion(self):
        """The answer so far; it is "cancelled" until it is over."""
        generator = self._generator
        *counts, reason, _ = self._usage if generator is None else generator.usage()
        return Completion("".join(self._text), list(self._tokens), reason, Usage(*counts), self._logprobs)

    def __repr__(self):
        return f"rushlight.llm.{type(self).__name__}({self.completion.text!r})"


class Stream(Answer):
    """An iterator of the pieces of an answer's text. `close`, also at the end of a `with`, ends it."""

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
    """An asynchronous iterator of the pieces of an answer's text; `await` gives the whole answer as a `Completion`.

    The model runs in threads of `asyncio.to_thread`. A task that is cancelled ends the answer after the step that runs.
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
        """Ends the answer. What there is of it stays."""
        self.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.close()
