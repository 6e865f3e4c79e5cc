"""Models and sessions."""

import contextlib
import json
import os
import threading
import weakref

from .._arguments import check_count, count_of
from .._module import core_arguments
from .._progress import Progress
from .._rushlight import Adapter, Generation, Generator, LanguageModel, cached_program
from .._rushlight import Session as _Session
from ._answer import Answer, AsyncStream, Stream
from ._options import with_options
from ._tokenizer import Tokenizer


# The default of arguments for which None has a meaning.
_DEFAULT = object()


class _Speaker:
    """The methods for prompts and messages of a model, which uses a new session for each, and of a session."""

    __slots__ = ()

    @with_options
    def generate(self, prompt, *, stream=False, **options):
        """Continues a text, which is a string or a list of tokens. Returns a `Completion`. For a list of prompts, an `LLM` returns a
        list.

        With `stream`, returns a `Stream`, an iterator over pieces of text. A `Session` continues from its tokens; the prompt may then
        be empty, as "".

        `max_new_tokens`: maximum number of tokens of the answer; by default until the context is full.
        `temperature` (0.8): divisor of the logits; 0 chooses the most likely token.
        `top_k` (40), `top_p` (0.95), `min_p` (0.05), `typical_p` (1): filters of the candidates, in this order; 0, 1, 0 and 1 keep
        all.
        `repetition_penalty` (1): divides positive logits, and multiplies negative ones, of tokens in the prompt or the answer.
        `presence_penalty` and `frequency_penalty` (0): subtracted from the logits of generated tokens, once and once for each
        occurrence.
        `dry_multiplier` (0), `dry_base` (1.75), `dry_allowed_length` (2), `dry_penalty_last_n` (None), `dry_sequence_breaker`:
        penalize tokens that continue a repetition (DRY); a multiplier of 0 does not. A breaker is a text that ends repetitions, or a
        list of them. The default is the line break, `:`, `"` and `*`; "none" means none.
        `mirostat` (0), `mirostat_tau` (5), `mirostat_eta` (0.1): 2 keeps the surprisal of the answer near `mirostat_tau` bits,
        instead of top-k, top-p, min-p and typical-p.
        `executorch_sampler`: samples like ExecuTorch's runners, with `temperature` and `seed` alone.
        `logit_bias`: a dict of tokens to numbers that are added to their logits.
        `seed` (0): the same seed gives the same text; None uses a new one each time.
        `stop`: a text that ends the answer and is not part of it, or a list of them.
        `ignore_eos`: continues after tokens that end an answer.
        `logprobs`: True for the log probability of each token; a number also adds this many of the most likely tokens.
        `json_schema`, `regex`, `grammar`: the form of the answer, one of them. A JSON schema is a dict, a text, or a class with
        `model_json_schema`, such as a Pydantic model. A regular expression must match the whole text. A grammar is in the syntax of
        Lark or of llama.cpp (GBNF).
        `speculate`: "lookup", or a smaller `LLM` with the same tokens, drafts up to `draft_max` (8) tokens, which one call verifies.
        The answer is the same, and faster if the drafts are right.

        Raises ValueError for invalid options, for an empty prompt and one that does not fit, and for tokens that the model does not
        have; and rushlight.Error if the program fails.
        """
        if stream:
            return self._stream(self._continuation, prompt, options)
        return self._answer(Answer, self._continuation, prompt, options)._finish()

    @with_options
    def chat(self, messages, tools=None, *, stream=False, chat_template_kwargs=None, **options):
        """Answers messages, by the chat template of the tokenizer. Returns a `Completion`, or with `stream` a `Stream`.

        `messages` and `tools` are as for `Tokenizer.apply_chat_template`, `chat_template_kwargs` is a dict of other variables of the
        template, and `options` are as for `generate`. The messages are the whole conversation each time. A `Session` keeps the
        common prefix with its tokens, and computes only the rest.
        """
        conversation = (messages, tools, chat_template_kwargs or {})
        if stream:
            return self._stream(self._reply, conversation, options)
        return self._answer(Answer, self._reply, conversation, options)._finish()

    @with_options
    def agenerate(self, prompt, **options):
        """Like `generate` for one prompt, without blocking the event loop: returns an `AsyncStream` to iterate over or to await."""
        return self._answer(AsyncStream, self._continuation, prompt, options)

    @with_options
    def achat(self, messages, tools=None, *, chat_template_kwargs=None, **options):
        """Like `chat`, without blocking the event loop: returns an `AsyncStream` to iterate over or to await."""
        return self._answer(AsyncStream, self._reply, (messages, tools, chat_template_kwargs or {}), options)

    def _stream(self, start, prompt, options):
        stream = self._answer(Stream, start, prompt, options)
        # An invalid prompt raises here.
        stream._begin()
        return stream

    def _answer(self, kind, start, prompt, options):
        if isinstance(options.get("speculate"), LLM):
            self._model()._check_draft(options["speculate"])
        generation = Generation(**_core_options(options))
        return kind(lambda: start(prompt, generation), self._locked(), with_logprobs=generation.has_logprobs)


class LLM(_Speaker):
    """A language model with its tokenizer.

        llm = rushlight.llm.LLM("llama.pte")
        answer = llm.generate("Once upon a time", max_new_tokens=64, temperature=0)
        print(answer.text, answer.finish_reason, answer.usage.completion_tokens)

    `path_or_bytes`, `data`, `threads`, `lower`, `cache`, `memory_limit` and `time_limit` are as for `rushlight.load`. The path may
    also be a Hugging Face folder or a .gguf file. It is compiled once, with `options`, which are those of `rushlight.llm.compile`:
    `LLM("Qwen3-0.6B/", quantize="8da4w", max_context_len=4096)`. The program is kept in `cache`, by default the folder of
    RUSHLIGHT_CACHE, or else the user's folder of caches. `progress` is as for `rushlight.compile`.
    `max_context_len` also shortens the context of a compiled program; it may have at most the positions that it was compiled for.
    `tokenizer` is a `Tokenizer`, or the path of its file or folder. By default it is the one in the program, or else the one
    beside it: see `Tokenizer.beside`.
    `lora` is the LoRA adapter of all answers: a folder in which PEFT saved it, or an `Adapter`. The program must be compiled with
    a `lora_rank`.

    Each call of `generate` and `chat` is a new conversation; `session` makes conversations that continue. Threads may share a
    model. Their steps take turns, as do those of several unfinished answers.

    Raises rushlight.Error if the file cannot be read or is not a well-formed program, and ValueError if it is not a language
    model or if there is no tokenizer.
    """

    __slots__ = ("__weakref__", "_adapter", "_core", "_drafts", "_idle", "_tokenizer")

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
        given, is_path = path_or_bytes, isinstance(path_or_bytes, (str, os.PathLike))
        check_count("max_context_len", options.get("max_context_len"))
        compiling = [name for name in options if name != "max_context_len"]
        if compiling and not is_path:
            raise TypeError(f"{compiling[0]} is an option of compiling a folder or a .gguf file, and needs its path")
        if is_path:
            followed = Progress(progress)
            with followed:
                path_or_bytes = cached_program(path_or_bytes, cache, options, followed.report)
        self._core = LanguageModel(
            *core_arguments(path_or_bytes, data, threads, lower, cache, memory_limit, time_limit),
            options.get("max_context_len"),
        )
        self._tokenizer = _tokenizer(self._core, given, tokenizer)
        self._adapter = lora if lora is None or isinstance(lora, Adapter) else self.adapter(lora)
        # A session whose answer has ended, for the next answer.
        self._idle = []
        # Models whose tokens are known to be the same.
        self._drafts = weakref.WeakSet()

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
        """The token at the beginning of a text, from the program, or None."""
        return self._core.bos_id

    @property
    def eos_ids(self):
        """Tokens that end an answer, from the program."""
        return self._core.eos_ids

    def embed(self, texts, *, pooling="last", dimensions=None):
        """Computes the embeddings of texts, for a model with `hidden_states=True`, such as `LLM("Qwen3-Embedding-0.6B/",
        hidden_states=True)`.

        `texts`: a text or a list of texts.
        `pooling`: "last" for the hidden state of the last token, or "mean" for the mean of all. Use the one that the model was
        trained with.
        `dimensions`: the number of elements of an embedding, by default all.

        Returns a `rushlight.Tensor` of f32 `[texts, dimensions]`, or `[dimensions]` for a single text. Each embedding has the Euclidean
        norm 1.

        Raises ValueError for wrong arguments, for an empty text and one that is longer than the context, and for a model that
        generates text.
        """
        if pooling not in ("last", "mean"):
            raise ValueError(f"pooling must be 'last' or 'mean', got {pooling!r}")
        size = self._core.embedding_size
        if size is not None and dimensions is not None and count_of(dimensions, 1, size) is None:
            raise ValueError(f"dimensions must be an int from 1 to {size}, got {dimensions!r}")
        is_single = isinstance(texts, str)
        tokens = [self._tokenizer.encode(text) for text in ([texts] if is_single else texts)]
        return self._core.embed(tokens, pooling == "mean", dimensions, is_single)

    @with_options
    def generate(self, prompt, *, stream=False, **options):
        if _is_list_of_prompts(prompt):
            if stream:
                raise TypeError("a stream continues one prompt: make one for each")
            return [super(LLM, self).generate(one, **options) for one in prompt]
        return super().generate(prompt, stream=stream, **options)

    generate.__doc__ = _Speaker.generate.__doc__

    def adapter(self, folder, scale=1.0):
        """Reads a LoRA adapter from the folder in which PEFT saved it. `scale` multiplies its effect.

        Raises RuntimeError for a program without a `lora_rank`, OSError for files that cannot be read, and rushlight.Error for
        adapters that are damaged, not supported, or of another model.
        """
        return Adapter(self._core, folder, scale)

    def session(self, adapter=_DEFAULT):
        """Makes a session. If a backend keeps the KV cache, any number of sessions share the weights. Each may have its own `adapter`,
        or None; by default it has that of the model.

        Raises RuntimeError for a second session if the reference operators keep the cache, in memory of the program, while the first
        session lives.
        """
        return Session(self, self._new_session(adapter))

    def _model(self):
        return self

    def _check_draft(self, draft):
        """Raises ValueError unless a draft model has the same tokens."""
        if draft not in self._drafts:
            self._tokenizer._core.check_draft(draft._tokenizer._core, self.vocab_size)
            self._drafts.add(draft)

    def _locked(self):
        # Each answer has a session of its own.
        return contextlib.nullcontext()

    def _new_session(self, adapter=_DEFAULT):
        adapter = self._adapter if adapter is _DEFAULT else adapter
        try:
            return _Session(self._core, adapter)
        except RuntimeError:
            # The program may have one session only: the idle one.
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
    """A conversation with a model, which keeps its tokens. `LLM.session` makes it.

        session = llm.session()
        session.generate("Once upon a time", max_new_tokens=16)
        beginning = session.fork()
        session.generate(" there was", max_new_tokens=16)

    Threads may share a session. An answer that is not a stream is complete before the call of another thread begins.

    An error in the middle of a call makes a session unusable until `reset`, but not the model. After a Ctrl-C in the middle of a
    prompt, the session has its first tokens.
    """

    __slots__ = ("_core", "_llm", "_lock", "_process")

    def __init__(self, llm, core):
        self._llm = llm
        self._core = core
        self._process = None

    def _model(self):
        return self._llm

    def _locked(self):
        """The lock of the session."""
        if self._process != os.getpid():
            # In the child of a fork, the thread that held the lock does not exist.
            self._lock, self._process = threading.RLock(), os.getpid()
        return self._lock

    @property
    def tokens(self):
        """The tokens so far: prompts, and the tokens of answers that the model has read, which are all but the last."""
        return self._core.tokens

    @property
    def position(self):
        """The position of the next token, which is the number of tokens so far."""
        return self._core.position

    @property
    def logits(self):
        """The logits after the last token, as a `rushlight.Tensor` f32[vocabulary]; empty before the first token."""
        return self._core.logits

    def prefill(self, prompt):
        """Adds a text or a list of tokens. The tokenizer's tokens before a text are added only at the beginning."""
        with self._locked():
            self._core.prefill(self._encoded(prompt))

    def keep_common_prefix(self, tokens):
        """Keeps the common prefix of the session and `tokens`, and removes the session's other tokens. Returns the length of the prefix.

        The length is at most that of all but the last token, whose logits are needed. Continue with `prefill(tokens[kept:])`. If the
        model cannot go back, the length is 0.
        """
        with self._locked():
            return self._core.keep_common_prefix(list(tokens))

    def reset(self):
        """Removes all tokens."""
        with self._locked():
            self._core.reset()

    def rewind(self, position):
        """Removes the tokens from `position` on.

        Raises ValueError for a position after the end, and RuntimeError if the model cannot go back.
        """
        with self._locked():
            self._core.rewind(position)

    def fork(self):
        """Makes an independent session that continues from here."""
        with self._locked():
            return Session(self._llm, self._core.fork())

    def save(self):
        """Returns the session as bytes, for `restore` with the same program."""
        with self._locked():
            return self._core.save()

    def restore(self, saved):
        """Replaces the session by a saved one. Raises ValueError or rushlight.Error for bytes of another program."""
        with self._locked():
            self._core.restore(saved)

    def _encoded(self, prompt):
        return _tokens(self._llm._tokenizer, prompt, self.position == 0)

    def _continuation(self, prompt, generation):
        tokens = self._encoded(prompt)
        if not tokens and self.position and not len(self.logits):
            # Their logits are computed again, after a rewind.
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
    """Converts options for the core: schemas to JSON, and models to their core."""
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
