"""Models and sessions."""

import contextlib
import json
import os
import threading

from .._module import core_arguments
from .._progress import Progress
from .._rushlight import Adapter, Generation, Generator, LanguageModel, cached_program
from .._rushlight import Session as _Session
from ._answer import Answer, AsyncStream, Stream
from ._tokenizer import Tokenizer


# What is not given, where None means something.
_DEFAULT = object()


class _Speaker:
    """What answers prompts and messages: a model, in sessions of its own, and a session."""

    __slots__ = ()

    def generate(self, prompt, *, stream=False, **options):
        """Continues a text, which is a string or a list of tokens. Returns a `Completion`; an `LLM` takes a list of prompts, too,
        and returns a list.

        With `stream`, returns a `Stream`, which is an iterator of pieces of text. A `Session` goes on from what it has, to which
        the prompt may add nothing, as "".

        `max_new_tokens`: how many tokens the answer may have, by default as many as the context has room for.
        `temperature` (0.8): logits are divided by it; 0 chooses the most likely token.
        `top_k` (40), `top_p` (0.95), `min_p` (0.05), `typical_p` (1): which tokens are left to choose from, in this order; 0, 1,
        0 and 1 keep all.
        `repetition_penalty` (1): divides positive logits of tokens that were seen, in the prompt too, and multiplies negative
        ones. `presence_penalty` and `frequency_penalty` (0): subtracted from logits of tokens that were generated, once and for
        each time.
        `dry_multiplier` (0), `dry_base` (1.75), `dry_allowed_length` (2), `dry_penalty_last_n` (None), `dry_sequence_breaker`:
        penalize tokens that would go on with a repetition (DRY); 0 does not. A breaker, or each of a list, is a text that no
        repetition goes across; by default the line break, `:`, `"` and `*`, and "none" is none.
        `mirostat` (0), `mirostat_tau` (5), `mirostat_eta` (0.1): 2 keeps the surprisal of the answer near `mirostat_tau` bits, in
        place of top-k, top-p, min-p and typical-p.
        `executorch_sampler`: choose the tokens that the sampler of ExecuTorch's runners chooses, by `temperature` and `seed` alone.
        `logit_bias`: a dictionary of numbers that are added to logits of tokens.
        `seed` (0): the same one gives the same text; None is another one each time.
        `stop`: a text that ends the answer and is no part of it, or a list of them.
        `ignore_eos`: go on after tokens that end an answer.
        `logprobs`: True for the log probability of each token, or the number of most likely tokens with theirs beside it.
        `json_schema`, `regex`, `grammar`: the form of the answer, one of them: JSON of a schema, which is a dictionary, a text, or
        a class with `model_json_schema` as Pydantic's models; a text that a regular expression matches as a whole; or one of a
        grammar in the syntax of Lark or of llama.cpp (GBNF).
        `speculate`: "lookup", or a smaller `LLM` with the same tokens: guess up to `draft_max` (8) tokens, and verify several in one
        call. The answer is the same, and comes faster where the guesses are right.

        Raises ValueError for options that mean nothing, for an empty prompt and one that does not fit, and for tokens that the
        model does not have; and rushlight.Error if the program fails.
        """
        if stream:
            return self._stream(self._continuation, prompt, options)
        return self._answer(Answer, self._continuation, prompt, options)._finish()

    def chat(self, messages, tools=None, *, stream=False, chat_template_kwargs=None, **options):
        """Answers messages, by the chat template of the tokenizer. Returns a `Completion`, or with `stream` a `Stream`.

        `messages` and `tools` are as for `Tokenizer.apply_chat_template`, `chat_template_kwargs` a dictionary of what else the
        template reads, and `options` as for `generate`. The messages are the whole conversation each time; a `Session` computes
        only what it does not have of them, and forgets what else it has.
        """
        conversation = (messages, tools, chat_template_kwargs or {})
        if stream:
            return self._stream(self._reply, conversation, options)
        return self._answer(Answer, self._reply, conversation, options)._finish()

    def agenerate(self, prompt, **options):
        """As `generate`, of one prompt and without blocking the event loop: an `AsyncStream` to iterate or to await."""
        return self._answer(AsyncStream, self._continuation, prompt, options)

    def achat(self, messages, tools=None, *, chat_template_kwargs=None, **options):
        """As `chat`, without blocking the event loop: an `AsyncStream` to iterate or to await."""
        return self._answer(AsyncStream, self._reply, (messages, tools, chat_template_kwargs or {}), options)

    def _stream(self, start, prompt, options):
        stream = self._answer(Stream, start, prompt, options)
        # What is wrong with the prompt is an error here.
        stream._begin()
        return stream

    def _answer(self, kind, start, prompt, options):
        generation = Generation(**_core_options(options))
        return kind(lambda: start(prompt, generation), self._locked(), with_logprobs=generation.has_logprobs)


class LLM(_Speaker):
    """A language model with its tokenizer.

        llm = rushlight.llm.LLM("llama.pte")
        answer = llm.generate("Once upon a time", max_new_tokens=64, temperature=0)
        print(answer.text, answer.finish_reason, answer.usage.completion_tokens)

    `path_or_bytes`, `data`, `threads`, `lower`, `cache`, `memory_limit` and `time_limit` are as for `rushlight.load`. The path may
    also be a folder of Hugging Face or a .gguf file. That is compiled once, with `options`, which are those of
    `rushlight.llm.compile`: `LLM("Qwen3-0.6B/", quantize="8da4w", max_context_len=4096)`. The program stays in `cache`, by default
    the folder of RUSHLIGHT_CACHE, or else the user's folder of caches. `progress` is as for `rushlight.compile`.
    `tokenizer` is a `Tokenizer`, or the path of its file or folder; by default it is that which the program carries, or else the
    one beside it, as `Tokenizer.beside` says.

    `lora` is the folder of a LoRA adapter as PEFT saves it, or an `Adapter`, that all answers have, for a program that was compiled
    with a `lora_rank` for it.

    Each answer of `generate` and `chat` begins anew; `session` makes conversations that go on. Threads may use a model, which
    takes their steps in turns, as do all answers that are not over.

    Raises rushlight.Error if the file cannot be read or is not a well-formed program, and ValueError if it is no language model
    or if there is no tokenizer.
    """

    __slots__ = ("_adapter", "_core", "_idle", "_tokenizer")

    def __init__(
        self,
        path_or_bytes,
        tokenizer=None,
        *,
        data=None,
        threads=None,
        lower="auto",
        cache=None,
        memory_limit=None,
        time_limit=None,
        lora=None,
        progress=None,
        **options,
    ):
        if options or isinstance(path_or_bytes, (str, os.PathLike)):
            followed = Progress(progress)
            with followed:
                path_or_bytes = cached_program(path_or_bytes, cache, options, followed.report)
        self._core = LanguageModel(
            *core_arguments(path_or_bytes, data, threads, lower, cache, memory_limit, time_limit)
        )
        self._tokenizer = _tokenizer(self._core, path_or_bytes, tokenizer)
        self._adapter = lora if lora is None or isinstance(lora, Adapter) else self.adapter(lora)
        # A session whose answer is over, for the next one.
        self._idle = []

    @property
    def tokenizer(self):
        return self._tokenizer

    @property
    def max_context_len(self):
        """Number of positions of the KV cache."""
        return self._core.max_context_len

    @property
    def vocab_size(self):
        """Number of logits."""
        return self._core.vocab_size

    @property
    def bos_id(self):
        """The token that a text begins with, as the program says, or None."""
        return self._core.bos_id

    @property
    def eos_ids(self):
        """Tokens that end an answer, as the program says."""
        return self._core.eos_ids

    def generate(self, prompt, *, stream=False, **options):
        if _is_list_of_prompts(prompt):
            if stream:
                raise TypeError("a stream continues one prompt: make one for each")
            return [super(LLM, self).generate(one, **options) for one in prompt]
        return super().generate(prompt, stream=stream, **options)

    def adapter(self, folder, scale=1.0):
        """Reads a LoRA adapter from the folder in which PEFT saved it. `scale` multiplies what it adds.

        Raises RuntimeError for a program without a `lora_rank`, OSError for files that cannot be read, and rushlight.Error for
        adapters that are damaged, not supported, or of another model.
        """
        return Adapter(self._core, folder, scale)

    def session(self, adapter=_DEFAULT):
        """Makes a session. Any number of them shares the weights, where a backend keeps the KV cache. Each may have an `adapter` of
        its own, or None, by default that of the model.

        Raises RuntimeError where the reference operators keep it, in memory of the program, for a second session while the
        first lives.
        """
        return Session(self, self._new_session(adapter))

    def _locked(self):
        # Each answer has a session of its own.
        return contextlib.nullcontext()

    def _new_session(self, adapter=_DEFAULT):
        adapter = self._adapter if adapter is _DEFAULT else adapter
        try:
            return _Session(self._core, adapter)
        except RuntimeError:
            # There may be one session alone, which is the idle one.
            if not self._idle:
                raise
            self._idle.clear()
            return _Session(self._core, adapter)

    def _take(self):
        try:
            session = self._idle.pop()
        except IndexError:
            return self._new_session()
        session.reset()
        return session

    def _continuation(self, prompt, generation):
        return self._begin(_tokens(self._tokenizer, prompt, True), generation)

    def _reply(self, messages, generation):
        messages, tools, variables = messages
        return self._begin(self._tokenizer.apply_chat_template(messages, tools, **variables), generation)

    def _begin(self, tokens, generation):
        session = self._take()
        generator = Generator(session, self._tokenizer._core, tokens, generation)

        def release():
            if not self._idle:
                self._idle.append(session)

        return generator, release

    def __repr__(self):
        return f"rushlight.llm.LLM(vocab_size={self.vocab_size}, max_context_len={self.max_context_len})"


class Session(_Speaker):
    """A conversation with a model, which keeps what was said. `LLM.session` makes it.

        session = llm.session()
        session.generate("Once upon a time", max_new_tokens=16)
        beginning = session.fork()
        session.generate(" there was", max_new_tokens=16)

    Threads may use a session. An answer that is no stream is whole before the next call of another thread begins.

    An error in the middle of a call makes a session unusable until `reset`, but not the model. A prompt in the middle of which
    Ctrl-C came is there up to some token.
    """

    __slots__ = ("_core", "_llm", "_lock", "_process")

    def __init__(self, llm, core):
        self._llm = llm
        self._core = core
        self._process = None

    def _locked(self):
        """The lock of the session."""
        if self._process != os.getpid():
            # In the child of a fork, the threads that may have it are gone.
            self._lock, self._process = threading.RLock(), os.getpid()
        return self._lock

    @property
    def tokens(self):
        """The tokens so far: prompts, and what the model read of its answers, which is all but the last token."""
        return self._core.tokens

    @property
    def position(self):
        """The position of the next token, which is the number of those so far."""
        return self._core.position

    @property
    def logits(self):
        """The logits after the last token, as a `rushlight.Tensor` f32[vocabulary]; without elements where there are none."""
        return self._core.logits

    def prefill(self, prompt):
        """Adds a text or a list of tokens. What the tokenizer puts before a text is added at the beginning alone."""
        with self._locked():
            self._core.prefill(self._encoded(prompt))

    def keep_common_prefix(self, tokens):
        """Keeps the tokens that the session and `tokens` begin with, and forgets the others. Returns their number.

        It is at most all but the last, whose logits are wanted: go on with `prefill(tokens[kept:])`. Where the model cannot go
        back, it is 0.
        """
        with self._locked():
            return self._core.keep_common_prefix(list(tokens))

    def reset(self):
        """Forgets everything."""
        with self._locked():
            self._core.reset()

    def rewind(self, position):
        """Forgets the tokens from `position` on.

        Raises ValueError for a position that was not reached, and RuntimeError where the model cannot go back.
        """
        with self._locked():
            self._core.rewind(position)

    def fork(self):
        """Makes a session that goes on from here on its own."""
        with self._locked():
            return Session(self._llm, self._core.fork())

    def save(self):
        """The session as bytes, for `restore` of a session with the same program."""
        with self._locked():
            return self._core.save()

    def restore(self, saved):
        """Goes on from a saved session. Raises ValueError or rushlight.Error for bytes that are none of this program."""
        with self._locked():
            self._core.restore(saved)

    def _encoded(self, prompt):
        return _tokens(self._llm._tokenizer, prompt, self.position == 0)

    def _continuation(self, prompt, generation):
        tokens = self._encoded(prompt)
        if not tokens and self.position and not len(self.logits):
            # They are computed again, in a session that was rewound.
            last = self.position - 1
            tokens = self.tokens[last:]
            self.rewind(last)
        return self._begin(tokens, generation)

    def _reply(self, messages, generation):
        messages, tools, variables = messages
        tokens = self._llm._tokenizer.apply_chat_template(messages, tools, **variables)
        return self._begin(tokens[self.keep_common_prefix(tokens) :], generation)

    def _begin(self, tokens, generation):
        return Generator(self._core, self._llm._tokenizer._core, tokens, generation), lambda: None

    def __repr__(self):
        return f"rushlight.llm.Session(position={self.position})"


def _tokenizer(core, source, given):
    """The tokenizer of a model."""
    if given is None:
        return Tokenizer(core.tokenizer(source if isinstance(source, (str, os.PathLike)) else None))
    return given if isinstance(given, Tokenizer) else Tokenizer.load(given)


def _core_options(options):
    """Options as the core takes them: schemas as JSON, and models as their core."""
    schema, draft = options.get("json_schema"), options.get("speculate")
    if schema is not None and not isinstance(schema, str):
        if hasattr(schema, "model_json_schema"):
            schema = schema.model_json_schema()
        options = {**options, "json_schema": json.dumps(schema, allow_nan=False)}
    if isinstance(draft, LLM):
        options = {**options, "speculate": draft._core}
    return options


def _is_list_of_prompts(prompt):
    return isinstance(prompt, (list, tuple)) and all(isinstance(one, (str, list, tuple)) for one in prompt)


def _tokens(tokenizer, prompt, add_special_tokens):
    return tokenizer.encode(prompt, add_special_tokens) if isinstance(prompt, str) else list(prompt)
