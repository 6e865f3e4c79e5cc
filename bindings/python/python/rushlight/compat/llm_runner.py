"""The names and behaviour of ExecuTorch's `executorch.extension.llm.runner`, for text.

A script changes its import and nothing else. Programs and tokenizers are those of `rushlight.llm.LLM`. Differences from
ExecuTorch: callbacks get the text, which is not printed as well. They do not get the text of the token that ends an answer. A
character of several tokens comes whole. The first token is sampled like the others. `stop` ends the answer before the next
token.
"""

import dataclasses
import json
import time

from .. import llm as _llm
from .._rushlight import runner_generated_tokens

__all__ = ["GenerationConfig", "Stats", "TextLLMRunner"]

# ExecuTorch's runner has no other.
_TOP_P = 0.9


@dataclasses.dataclass(repr=False)
class GenerationConfig:
    """Options of text generation."""

    # True if the callback gets the prompt first.
    echo: bool = True
    # Maximum number of tokens of the answer; -1 until the context is full.
    max_new_tokens: int = -1
    # True for a warm-up. ExecuTorch then prints nothing; here nothing is ever printed.
    warming: bool = False
    # Maximum number of tokens of the prompt and the answer; -1 until the context is full.
    seq_len: int = -1
    temperature: float = 0.8
    # Number of BOS tokens before the prompt, and of EOS tokens after it.
    num_bos: int = 0
    num_eos: int = 0
    ignore_eos: bool = False

    def resolve_max_new_tokens(self, max_context_len, num_tokens_occupied):
        """Returns the maximum number of tokens of an answer that begins at a position."""
        capacity = max_context_len if self.seq_len == -1 else min(self.seq_len, max_context_len)
        room = capacity - num_tokens_occupied
        return max(0, room if self.max_new_tokens == -1 else min(room, self.max_new_tokens))

    def __repr__(self):
        return (
            f"<GenerationConfig max_new_tokens={self.max_new_tokens} seq_len={self.seq_len} "
            f"temperature={self.temperature:.6f} echo={self.echo} warming={self.warming}>"
        )


class Stats:
    """Token counts, and times in milliseconds since the epoch."""

    SCALING_FACTOR_UNITS_PER_SECOND = 1000

    def __init__(self):
        self._sampling_begin = 0
        self.reset(all_stats=True)

    def reset(self, all_stats=False):
        """Resets the counts and times of an answer, and with `all_stats` the time of loading."""
        if all_stats:
            self.model_load_start_ms = self.model_load_end_ms = 0
        self.inference_start_ms = self.token_encode_end_ms = self.prompt_eval_end_ms = 0
        self.model_execution_start_ms = self.model_execution_end_ms = 0
        self.first_token_ms = self.inference_end_ms = 0
        self.aggregate_sampling_time_ms = self.aggregate_model_execution_time_ms = 0
        self.num_prompt_tokens = 0
        # Without the first token, which comes from the prompt's logits.
        self.num_generated_tokens = 0

    def on_sampling_begin(self):
        self._sampling_begin = _now()

    def on_sampling_end(self):
        self.aggregate_sampling_time_ms += _now() - self._sampling_begin

    def to_json_string(self):
        """Returns the statistics in the JSON of ExecuTorch's observers. A rate without a time is left out."""
        prefill = _rate(self.num_prompt_tokens, self.prompt_eval_end_ms - self.inference_start_ms)
        decode = _rate(self.num_generated_tokens, self.inference_end_ms - self.prompt_eval_end_ms)
        rates = {"prefill_token_per_sec": prefill, "decode_token_per_sec": decode}
        fields = {
            **{name: json.loads(f"{rate:.6g}") for name, rate in rates.items() if rate is not None},
            "prompt_tokens": self.num_prompt_tokens,
            "generated_tokens": self.num_generated_tokens,
        }
        for name in (
            "model_load_start_ms",
            "model_load_end_ms",
            "inference_start_ms",
            "inference_end_ms",
            "model_execution_start_ms",
            "model_execution_end_ms",
            "prompt_eval_end_ms",
            "first_token_ms",
            "aggregate_sampling_time_ms",
            "aggregate_model_execution_time_ms",
            "SCALING_FACTOR_UNITS_PER_SECOND",
        ):
            fields[name] = getattr(self, name)
        return json.dumps(fields, separators=(",", ":"))

    def __repr__(self):
        rate = _rate(self.num_generated_tokens, self.inference_end_ms - self.inference_start_ms) or 0.0
        return (
            f"<Stats num_prompt_tokens={self.num_prompt_tokens} num_generated_tokens={self.num_generated_tokens} "
            f"tokens_per_second={rate:.6f}>"
        )


class TextLLMRunner:
    """A language model with one conversation. Each prompt continues it, until `reset`."""

    def __init__(self, model_path, tokenizer_path, data_path=None):
        self._stats = Stats()
        self._stats.model_load_start_ms = _now()
        tokenizer = _checked(f"Failed to load tokenizer from: {tokenizer_path}", _llm.Tokenizer.load, tokenizer_path)
        self._llm = _checked("Failed to load the model", _llm.LLM, model_path, tokenizer, data=data_path)
        self._stats.model_load_end_ms = _now()
        self._session = None
        self._is_stopped = False

    def is_loaded(self):
        """True if the model is loaded."""
        return self._session is not None

    def load(self):
        """Makes the KV cache. Otherwise the first `generate` or `prefill` does it."""
        if self._session is None:
            self._session = self._llm.session()

    def generate(self, prompt, config, token_callback=None, stats_callback=None):
        """Adds a prompt to the conversation and answers it. The prompt may be empty after `prefill`.

        `token_callback` gets the text piece by piece, `stats_callback` the statistics at the end. Raises RuntimeError if the prompt
        does not fit, or leaves no room for an answer.
        """
        self.load()
        self._is_stopped = False
        stats = self._stats
        stats.reset()
        stats.inference_start_ms = _now()
        tokens = self._encoded(prompt, config)
        stats.token_encode_end_ms = _now()
        stats.num_prompt_tokens = len(tokens)
        occupied = self._session.position + len(tokens)
        room = config.resolve_max_new_tokens(self._llm.max_context_len, occupied)
        if room == 0:
            raise RuntimeError(f"Generation failed: {occupied} tokens leave no room for an answer")
        if config.echo and prompt and token_callback:
            token_callback(prompt)
        options = {"max_new_tokens": room, "temperature": config.temperature, "ignore_eos": config.ignore_eos}
        # ExecuTorch's sampler, with a new seed each time.
        options.update(top_k=0, top_p=_TOP_P, min_p=0, seed=None)
        answer = _checked("Generation failed", self._session.generate, tokens, stream=True, **options)
        stats.prompt_eval_end_ms = _now()
        with answer:
            while not self._is_stopped:
                start = _now()
                piece = _checked("Generation failed", next, answer, None)
                if piece is None:
                    break
                stats.model_execution_start_ms, stats.model_execution_end_ms = start, _now()
                stats.first_token_ms = stats.first_token_ms or stats.model_execution_end_ms
                if token_callback:
                    token_callback(piece)
        stats.inference_end_ms = _now()
        *_, reason, usage, _ = answer.completion
        stats.num_generated_tokens = runner_generated_tokens(usage.completion_tokens, reason == "stop")
        stats.aggregate_model_execution_time_ms = round(usage.seconds * stats.SCALING_FACTOR_UNITS_PER_SECOND)
        if stats_callback:
            stats_callback(stats)

    def prefill(self, prompt, config=None):
        """Adds a text to the conversation, such as earlier messages, without an answer."""
        self.load()
        tokens = self._encoded(prompt, config or GenerationConfig())
        _checked("Prefill failed", self._session.prefill, tokens)

    def stop(self):
        """Ends the answer before the next token. Callbacks and other threads may call it."""
        self._is_stopped = True

    def reset(self):
        """Removes the conversation."""
        self._stats.reset()
        if self._session is not None:
            self._session.reset()

    def get_vocab_size(self):
        """Returns the number of the model's logits."""
        return self._llm.vocab_size

    def _encoded(self, prompt, config):
        tokenizer = self._llm.tokenizer
        tokens = _checked("Failed to encode the prompt", tokenizer.encode, prompt, add_special_tokens=False)
        bos = tokenizer.bos_id if tokenizer.bos_id is not None else self._llm.bos_id
        begin = [] if bos is None else [bos] * config.num_bos
        end = (tokenizer.eos_ids or self._llm.eos_ids)[:1] * config.num_eos
        return begin + tokens + end

    def __repr__(self):
        return "<TextLLMRunner>"


def _checked(problem, act, *arguments, **options):
    """Calls a function. Converts its refusals to RuntimeError, as ExecuTorch's runner does."""
    try:
        return act(*arguments, **options)
    except (OSError, ValueError) as error:
        raise RuntimeError(f"{problem}: {error}") from error


def _rate(count, milliseconds):
    """Returns a rate per second; None without a time."""
    return None if milliseconds <= 0 else count * Stats.SCALING_FACTOR_UNITS_PER_SECOND / milliseconds


def _now():
    return time.time_ns() // 1_000_000
