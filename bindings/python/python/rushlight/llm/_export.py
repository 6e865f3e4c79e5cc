"""The export of decoders of transformers, and its command."""

import argparse
import contextlib
import os
import sys
import tempfile

from .._backend import adapted
from .._compile import compile
from .._errors import Error
from .._progress import Progress
from .._quantization import Quantization
from .._rushlight import SCHEMES, TOKENIZER_SETTINGS, TOKENIZER_VOCABULARIES

# Default positions of the cache, if the model has as many.
_DEFAULT_CONTEXT = 2048
# Element types of caches.
_KV_CACHES = ("f32", "f16", "bf16", "int8", "int4")
# Number of tokens of the example that the export traces.
_TRACED = 3


def export(
    model,
    *,
    max_context_len=None,
    max_seq_len=None,
    full_logits=False,
    quantize=None,
    embeddings=None,
    kv_cache="f32",
    backend="cpu",
    constant_methods=None,
    tokenizer=None,
    progress=None,
    **options,
):
    """Exports a decoder of transformers with its KV cache and compiles it. Needs torch and transformers.

    The program is `forward(tokens: i64[1, T], start_pos: i64[1])`. It returns the logits of the last token, f32[1, vocabulary],
    or with `full_logits` those of all tokens, f32[1, T, vocabulary]. The cache is state. `start_pos` is the position of the first
    token; the cache is overwritten from there on. The constant methods are those that ExecuTorch's runners read:
    `get_max_seq_len`, `get_max_context_len`, `get_vocab_size`, `get_bos_id`, `get_eos_ids`, `use_kv_cache`,
    `use_sdpa_with_kv_cache` and `enable_dynamic_shape`.

    `model`: a folder of `save_pretrained`, the name of a model on Hugging Face's hub, or a `transformers.PreTrainedModel`, whose
    weights are converted to float32.
    `max_context_len`: positions of the cache; by default those of the model, at most 2048.
    `max_seq_len`: maximum tokens of a call; by default all positions.
    `quantize`: the name of a scheme that needs no calibration, such as "8da4w" or "int4", or a `rushlight.Quantization`.
    `embeddings`: 8 or 4 bits for the table of the embeddings, with `quantize`.
    `kv_cache`: element type of the cache: "f32", "f16", "bf16", "int8" with a scale and a zero point for each row, or "int4"
    with those for each group of 32 elements.
    `tokenizer`: the tokenizer that the program carries. By default it is that of the folder or of the model on the hub, if there
    is one. It can be the path of a file or folder, which a `PreTrainedModel` needs, or False for none.
    `backend`, `constant_methods`, `progress` and `options` are as for `rushlight.compile`. A constant method replaces the one
    with its name.

    Raises ValueError for lengths that the model does not have and for unknown types of the cache, and TypeError for a model that
    is not a decoder.
    """
    # Checked first, because the export takes long.
    quantize, backend = quantization(quantize, embeddings), adapted(backend)
    if kv_cache not in _KV_CACHES:
        raise ValueError(f"kv_cache is {kv_cache!r}: expected one of {_KV_CACHES}")
    if tokenizer not in (None, False) and not os.path.exists(tokenizer):
        raise FileNotFoundError(f"there is no tokenizer `{os.fspath(tokenizer)}`")
    progress = Progress(progress)
    import torch

    with progress.stage("loading"):
        network = _loaded(model)
    if tokenizer is None and not isinstance(model, torch.nn.Module):
        tokenizer = _published_tokenizer(model)
    context = _context(max_context_len, network)
    seq_len = context if max_seq_len is None else max_seq_len
    if not 1 <= seq_len <= context:
        raise ValueError(f"max_seq_len is {seq_len}: expected from 1 to {context}, the positions of the cache")
    constants = {**_metadata(network, context, seq_len), **(constant_methods or {})}
    decoder = _decoder(network, context, full_logits)
    traced = min(_TRACED, seq_len)
    shapes = None if seq_len == 1 else ({1: torch.export.Dim("tokens", min=1, max=seq_len)}, None)
    with torch.no_grad(), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        tokens, start_pos = torch.zeros(1, traced, dtype=torch.long), torch.zeros(1, dtype=torch.long)
        with progress.stage("exporting"), _batched_experts(network):
            exported = torch.export.export(decoder, (tokens, start_pos), dynamic_shapes=shapes, strict=False)
        # A file is mapped; bytes would take their memory twice.
        file = os.path.join(folder, "decoder.pt2")
        torch.export.save(exported, file)
        del exported, decoder
        if not isinstance(model, torch.nn.Module):
            del network
        return compile(
            file,
            quantize=quantize,
            kv_cache=kv_cache,
            backend=backend,
            constant_methods=constants,
            tokenizer=tokenizer or None,
            progress=progress,
            **options,
        )


def _published_tokenizer(model):
    """Returns the file of the tokenizer in a folder or of a model on the hub, with its settings beside it; None without one."""
    from transformers.utils import cached_file

    def found(names):
        for name in names:
            file = cached_file(os.fspath(model), name, _raise_exceptions_for_missing_entries=False)
            if file is not None:
                yield file

    vocabulary = next(found(TOKENIZER_VOCABULARIES), None)
    if vocabulary is not None:
        # The hub's files are downloaded to one folder, where the compiler looks for the settings.
        for _ in found(TOKENIZER_SETTINGS):
            pass
    return vocabulary


def _loaded(model):
    """Loads the model in evaluation mode, with weights in float32."""
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedModel

    if isinstance(model, torch.nn.Module):
        if not isinstance(model, PreTrainedModel) or not model.can_generate():
            raise TypeError(f"cannot export a {type(model).__name__}: expected a decoder of transformers, or its folder")
        network = model.float()
    else:
        network = AutoModelForCausalLM.from_pretrained(os.fspath(model), dtype=torch.float32)
    return network.eval().requires_grad_(False)


@contextlib.contextmanager
def _batched_experts(network):
    """Makes a mixture of experts look up a matrix for each row. The compiler converts that to GEMMs of the chosen experts."""
    known = getattr(network, "get_experts_implementation", dict)()
    if known:
        network.set_experts_implementation("batched_mm")
    try:
        yield
    finally:
        if known:
            network.set_experts_implementation(known)


def quantization(quantize, embeddings):
    """Returns the quantization, including that of the embeddings.

    Raises ValueError for a scheme that needs a calibration, which a language model is exported without.
    """
    scheme = quantize.scheme if isinstance(quantize, Quantization) else quantize
    if isinstance(scheme, str) and SCHEMES.get(scheme):
        others = ", ".join(name for name, needs_calibration in SCHEMES.items() if not needs_calibration)
        raise ValueError(f"{scheme} measures ranges on inputs: choose a scheme without a calibration: {others}")
    if embeddings is None:
        return quantize
    if quantize is None:
        raise ValueError('embeddings are made integers along with the layers: give quantize, such as "8da4w"')
    settings = quantize if isinstance(quantize, Quantization) else Quantization(quantize)
    return settings._replace(embeddings=embeddings)


def _context(given, network):
    """Returns the number of positions of the cache, which the model must have."""
    positions = getattr(network.config.get_text_config(), "max_position_embeddings", None)
    length = given if given is not None else min(_DEFAULT_CONTEXT, positions or _DEFAULT_CONTEXT)
    if length < 1 or (positions is not None and length > positions):
        raise ValueError(f"max_context_len is {length}: expected from 1 to {positions}, the positions of the model")
    return length


def _metadata(network, context, seq_len):
    """Returns the constant methods that ExecuTorch's runners read, by name."""
    text = network.config.get_text_config()

    def token(name):
        found = getattr(network.generation_config, name, None)
        return getattr(text, name, None) if found is None else found

    begin, ends = token("bos_token_id"), token("eos_token_id")
    constants = {
        "get_max_seq_len": seq_len,
        "get_max_context_len": context,
        "get_vocab_size": text.vocab_size,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
        "enable_dynamic_shape": seq_len > 1,
    }
    if begin is not None:
        constants["get_bos_id"] = begin
    if ends is not None:
        constants["get_eos_ids"] = list(ends) if isinstance(ends, (list, tuple)) else [ends]
    return constants


def _decoder(network, context, full_logits):
    """Returns the module for the export: the model with its cache as buffers."""
    import torch
    from transformers import GenerationConfig
    from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            known = network.generation_config
            network.generation_config = GenerationConfig(use_cache=True, cache_implementation="static")
            try:
                # Makes the caches of the layers, and registers them as buffers.
                self.cached = TorchExportableModuleForDecoderOnlyLM(network, batch_size=1, max_cache_len=context).model
            finally:
                network.generation_config = known
            self.kept = 0 if full_logits else 1

        def forward(self, tokens, start_pos):
            cache = getattr(self.cached, "static_cache", None) or self.cached.cache
            for layer in cache.layers:
                layer.cumulative_length.copy_(start_pos[0])
            outputs = network(
                input_ids=tokens, past_key_values=cache, use_cache=True, logits_to_keep=self.kept, return_dict=True
            )
            return outputs.logits[:, -1] if self.kept else outputs.logits

    return Decoder()


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m rushlight.llm", description="Exports a decoder of transformers and compiles it to a .pte file."
    )
    parser.add_argument("model", help="the folder of the model, or its name on Hugging Face's hub")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.pte", help="the file to write")
    dynamic = [name for name, needs_calibration in SCHEMES.items() if not needs_calibration]
    parser.add_argument("--quantize", choices=dynamic, help="what layers compute in")
    parser.add_argument("--embeddings", type=int, choices=(4, 8), help="bits of the table of the embeddings")
    parser.add_argument("--max-context-len", type=int, metavar="TOKENS", help="positions of the cache")
    parser.add_argument("--max-seq-len", type=int, metavar="TOKENS", help="the most tokens of a call")
    parser.add_argument("--full-logits", action="store_true", help="return the logits of all tokens")
    parser.add_argument("--kv-cache", choices=_KV_CACHES, default="f32", help="what the cache is stored as")
    parser.add_argument("--tokenizer", metavar="FILE|FOLDER", help="what the program carries; by default that of the model")
    parser.add_argument("--no-tokenizer", action="store_true", help="leave the tokenizer out of the program")
    parser.add_argument("--backend", action="append", metavar="NAME[:KEY=VALUE,...]", help="by default cpu")
    options = parser.parse_args(arguments)
    try:
        program = export(
            options.model,
            quantize=options.quantize,
            embeddings=options.embeddings,
            max_context_len=options.max_context_len,
            max_seq_len=options.max_seq_len,
            full_logits=options.full_logits,
            kv_cache=options.kv_cache,
            backend=options.backend or "cpu",
            tokenizer=False if options.no_tokenizer else options.tokenizer,
        )
        written = program.save(options.output)
    except (Error, ImportError, OSError, TypeError, ValueError) as error:
        sys.exit(f"error: {error}")
    taken = ", ".join(f"{name} {count}" for name, count in program.report.backends.items())
    print(f"{options.output}  {written / 1e6:.1f} MB · nodes: {taken}")
