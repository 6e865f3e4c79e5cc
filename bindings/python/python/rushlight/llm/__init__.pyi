import os
from types import TracebackType
from typing import (
    Any,
    AsyncIterator,
    Awaitable,
    Generator,
    Iterable,
    Iterator,
    Literal,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    SupportsFloat,
    SupportsIndex,
    TypedDict,
    Union,
    final,
    overload,
)

from typing_extensions import Self, Unpack

from .. import Program, Quantization, Tensor, _Backends, _Bytes, _Lower, _Progress, _Source

__all__ = [
    "LLM",
    "Adapter",
    "AsyncStream",
    "Completion",
    "Session",
    "Stream",
    "TokenLogprob",
    "Tokenizer",
    "Usage",
    "compile",
    "export",
    "main",
]

_Path = Union[str, os.PathLike[str]]
_Prompt = Union[str, Sequence[int]]
_Messages = Sequence[Mapping[str, Any]]
_Tools = Optional[Sequence[Mapping[str, Any]]]

class _Options(TypedDict, total=False):
    # Generated from the table of options by `UPDATE_DOCS=1 cargo test -p rushlight-cli --test it bindings`.
    max_new_tokens: Optional[int]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: Optional[int]
    dry_sequence_breaker: Union[str, Sequence[str], None]
    mirostat: Literal[0, 2]
    mirostat_tau: float
    mirostat_eta: float
    executorch_sampler: bool
    logit_bias: Optional[Mapping[int, float]]
    seed: Optional[int]
    stop: Union[str, Sequence[str], None]
    ignore_eos: bool
    logprobs: Union[bool, int, None]
    json_schema: Any
    regex: Optional[str]
    grammar: Optional[str]
    speculate: Union[Literal["lookup"], LLM, None]
    draft_max: int
    # End of the generated options.

class Tokenizer:
    @classmethod
    def load(cls, path: _Path) -> Self: ...
    @classmethod
    def beside(cls, model: _Path) -> Optional[Self]: ...
    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]: ...
    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str: ...
    @overload
    def apply_chat_template(
        self,
        messages: _Messages,
        tools: _Tools = None,
        add_generation_prompt: bool = True,
        tokenize: Literal[True] = True,
        **variables: Any,
    ) -> list[int]: ...
    @overload
    def apply_chat_template(
        self,
        messages: _Messages,
        tools: _Tools = None,
        add_generation_prompt: bool = True,
        *,
        tokenize: Literal[False],
        **variables: Any,
    ) -> str: ...
    def id_to_token(self, id: int) -> Optional[str]: ...
    def token_to_id(self, token: str) -> Optional[int]: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def bos_id(self) -> Optional[int]: ...
    @property
    def eos_ids(self) -> list[int]: ...
    def __len__(self) -> int: ...

class Usage(NamedTuple):
    prompt_tokens: int
    completion_tokens: int
    prefill_seconds: float
    decode_seconds: float
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    @property
    def total_tokens(self) -> int: ...
    @property
    def seconds(self) -> float: ...

class TokenLogprob(NamedTuple):
    token: int
    logprob: float
    top: dict[int, float]

class Completion(NamedTuple):
    text: str
    tokens: list[int]
    finish_reason: Literal["stop", "length", "cancelled"]
    usage: Usage
    logprobs: Optional[list[TokenLogprob]]

class Stream(Iterator[str]):
    def __next__(self) -> str: ...
    def close(self) -> None: ...
    @property
    def completion(self) -> Completion: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None: ...

class AsyncStream(AsyncIterator[str], Awaitable[Completion]):
    async def __anext__(self) -> str: ...
    def __await__(self) -> Generator[Any, Any, Completion]: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...
    @property
    def completion(self) -> Completion: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None: ...

class _Speaker:
    @overload
    def chat(
        self,
        messages: _Messages,
        tools: _Tools = None,
        *,
        stream: Literal[False] = False,
        chat_template_kwargs: Optional[Mapping[str, Any]] = None,
        **options: Unpack[_Options],
    ) -> Completion: ...
    @overload
    def chat(
        self,
        messages: _Messages,
        tools: _Tools = None,
        *,
        stream: Literal[True],
        chat_template_kwargs: Optional[Mapping[str, Any]] = None,
        **options: Unpack[_Options],
    ) -> Stream: ...
    def agenerate(self, prompt: _Prompt, **options: Unpack[_Options]) -> AsyncStream: ...
    def achat(
        self,
        messages: _Messages,
        tools: _Tools = None,
        *,
        chat_template_kwargs: Optional[Mapping[str, Any]] = None,
        **options: Unpack[_Options],
    ) -> AsyncStream: ...

@final
class Adapter:
    @property
    def size(self) -> int: ...

class LLM(_Speaker):
    def __init__(
        self,
        path_or_bytes: _Source,
        tokenizer: Union[Tokenizer, _Path, None] = None,
        *,
        data: Union[_Source, Sequence[_Source], None] = None,
        threads: Optional[SupportsIndex] = None,
        lower: _Lower = "auto",
        cache: Optional[_Path] = None,
        memory_limit: Optional[SupportsIndex] = None,
        time_limit: Optional[SupportsFloat] = None,
        lora: Union[Adapter, _Path, None] = None,
        progress: _Progress = None,
        **options: Any,
    ) -> None: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def max_context_len(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def bos_id(self) -> Optional[int]: ...
    @property
    def eos_ids(self) -> list[int]: ...
    def embed(
        self, texts: Union[str, Sequence[str]], *, pooling: Literal["last", "mean"] = "last", dimensions: Optional[int] = None
    ) -> Tensor: ...
    # A `str` is also a `Sequence[str]`, so this overload overlaps the last.
    @overload
    def generate(  # type: ignore[overload-overlap]
        self, prompt: _Prompt, *, stream: Literal[False] = False, **options: Unpack[_Options]
    ) -> Completion: ...
    @overload
    def generate(self, prompt: _Prompt, *, stream: Literal[True], **options: Unpack[_Options]) -> Stream: ...
    @overload
    def generate(
        self, prompt: Sequence[_Prompt], *, stream: Literal[False] = False, **options: Unpack[_Options]
    ) -> list[Completion]: ...
    def adapter(self, folder: _Path, scale: SupportsFloat = 1.0) -> Adapter: ...
    def session(self, adapter: Optional[Adapter] = ...) -> Session: ...

class Session(_Speaker):
    @property
    def tokens(self) -> list[int]: ...
    @property
    def position(self) -> int: ...
    @property
    def logits(self) -> Tensor: ...
    def prefill(self, prompt: _Prompt) -> None: ...
    @overload
    def generate(
        self, prompt: _Prompt, *, stream: Literal[False] = False, **options: Unpack[_Options]
    ) -> Completion: ...
    @overload
    def generate(self, prompt: _Prompt, *, stream: Literal[True], **options: Unpack[_Options]) -> Stream: ...
    def keep_common_prefix(self, tokens: Iterable[int]) -> int: ...
    def reset(self) -> None: ...
    def rewind(self, position: int) -> None: ...
    def fork(self) -> Session: ...
    def save(self) -> bytes: ...
    def restore(self, saved: _Bytes) -> None: ...

def compile(
    path: _Path,
    *,
    max_context_len: Optional[int] = None,
    max_seq_len: Optional[int] = None,
    full_logits: bool = False,
    hidden_states: bool = False,
    lora_rank: Optional[int] = None,
    quantize: Union[str, Quantization, None] = None,
    embeddings: Optional[int] = None,
    kv_cache: str = "f32",
    backend: _Backends = "cpu",
    constant_methods: Optional[Mapping[str, Any]] = None,
    tokenizer: Union[_Path, Literal[False], None] = None,
    progress: _Progress = None,
) -> Program: ...
def export(
    model: Any,
    *,
    max_context_len: Optional[int] = None,
    max_seq_len: Optional[int] = None,
    full_logits: bool = False,
    quantize: Union[str, Quantization, None] = None,
    embeddings: Optional[int] = None,
    kv_cache: str = "f32",
    backend: _Backends = "cpu",
    constant_methods: Optional[Mapping[str, Any]] = None,
    tokenizer: Union[_Path, Literal[False], None] = None,
    progress: _Progress = None,
    **options: Any,
) -> Program: ...
def main(arguments: Optional[Sequence[str]] = None) -> None: ...
