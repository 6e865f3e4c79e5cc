"""`rushlight.llm.export`, compared with eager transformers, and the command of the module."""

import pathlib
import shutil

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import rushlight
import rushlight.llm

SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": [2, 3],
}
MODELS = {
    # A window of 6 in its first layer, and none in the second.
    "gemma3": lambda: transformers.Gemma3ForCausalLM(
        transformers.Gemma3TextConfig(
            **SIZES, sliding_window=6, layer_types=["sliding_attention", "full_attention"], query_pre_attn_scalar=16
        )
    ),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)),
    "mixtral": lambda: transformers.MixtralForCausalLM(transformers.MixtralConfig(**SIZES, num_local_experts=4)),
    "qwen2_moe": lambda: transformers.Qwen2MoeForCausalLM(
        transformers.Qwen2MoeConfig(
            **SIZES,
            num_experts=6,
            num_experts_per_tok=3,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=48,
        )
    ),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES, tie_word_embeddings=True)),
    "qwen3_moe": lambda: transformers.Qwen3MoeForCausalLM(
        transformers.Qwen3MoeConfig(**SIZES, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32)
    ),
}
PROMPT, STEPS = 9, 8
DECODER = pathlib.Path(__file__).resolve().parents[3] / "tests" / "decoders" / "llama"


@pytest.fixture(params=sorted(MODELS))
def model(request):
    torch.manual_seed(0)
    return MODELS[request.param]().eval()


def eager(model, tokens):
    with torch.no_grad():
        return model(tokens).logits[:, -1]


def decoded(program, prompt, expected):
    """Generates greedy tokens, and compares the logits of each step with `expected(tokens)`. Returns the maximum relative error."""
    tokens, position, errors = prompt, 0, []
    for _ in range(STEPS):
        logits = program(tokens[:, position:], torch.tensor([position]))
        position = tokens.shape[1]
        reference = expected(tokens)
        errors.append(((logits - reference).abs().max() / reference.abs().max()).item())
        assert logits.argmax() == reference.argmax()
        tokens = torch.cat([tokens, reference.argmax(-1, keepdim=True)], 1)
    return max(errors)


def test_a_decoder_gives_the_tokens_of_eager(model):
    program = rushlight.llm.export(model, max_context_len=32, max_seq_len=16)
    prompt = torch.randint(0, SIZES["vocab_size"], (1, PROMPT))
    assert decoded(program, prompt, lambda tokens: eager(model, tokens)) < 1e-5
    # The next conversation overwrites the cache.
    other = torch.randint(0, SIZES["vocab_size"], (1, PROMPT - 4))
    assert decoded(program, other, lambda tokens: eager(model, tokens)) < 1e-5
    assert set(program.report.backends) == {"RushlightCpu"}


def int8_rows(x):
    """Rows after rounding to an int8 cache."""
    import torch.ao.quantization.fx._decomposed  # noqa: F401  the operators

    ops = torch.ops.quantized_decomposed
    scales, zeros = ops.choose_qparams_per_token_asymmetric(x, torch.int8)
    rows = ops.quantize_per_token(x, scales, zeros, -128, 127, torch.int8)
    return ops.dequantize_per_token(rows, scales, zeros, -128, 127, torch.int8, torch.float32)


def int4_rows(x):
    """Rows after torchao's rounding to 4 bits in groups of 32 elements, or in one group for rows of another size."""
    from torchao.quantization import quant_primitives as ops

    blocks = (1, 1, 1, 32 if x.shape[-1] % 32 == 0 else x.shape[-1])
    kind = {"quant_min": 0, "quant_max": 15}
    scales, zeros = ops.choose_qparams_affine(x, ops.MappingType.ASYMMETRIC, blocks, torch.uint8, **kind)
    integers = ops.quantize_affine(x, blocks, scales, zeros, torch.uint8, **kind)
    return ops.dequantize_affine(integers, blocks, scales, zeros, torch.uint8, **kind)


CACHES = {"f16": lambda x: x.half().float(), "bf16": lambda x: x.bfloat16().float(), "int8": int8_rows, "int4": int4_rows}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] if "f16" in kind else []) for kind in CACHES])
def test_a_cache_gives_the_tokens_of_eager_with_rounded_keys_and_values(model, kind):
    kept = CACHES[kind]

    class Rounded(transformers.DynamicCache):
        def update(self, key_states, value_states, *args, **kwargs):
            return super().update(kept(key_states), kept(value_states), *args, **kwargs)

    def rounded(tokens):
        with torch.no_grad():
            return model(tokens, past_key_values=Rounded(), use_cache=True).logits[:, -1]

    program = rushlight.llm.export(model, max_context_len=32, max_seq_len=16, kv_cache=kind)
    prompt = torch.randint(0, SIZES["vocab_size"], (1, PROMPT))
    assert decoded(program, prompt, rounded) < 1e-5
    assert set(program.report.backends) == {"RushlightCpu"}


def test_a_cache_of_another_type_is_refused():
    with pytest.raises(ValueError, match="int8"):
        rushlight.llm.export(MODELS["llama"](), max_context_len=16, kv_cache="int2")


def test_an_export_leaves_the_experts_of_a_model_as_they_were():
    model = MODELS["mixtral"]()
    known = model.get_experts_implementation()
    rushlight.llm.export(model, max_context_len=16, max_seq_len=4)
    assert model.get_experts_implementation() == known


def test_experts_are_quantized():
    torch.manual_seed(0)
    model = MODELS["mixtral"]().eval()
    program = rushlight.llm.export(model, max_context_len=32, quantize="int8-weight")
    experts = [layer for layer in program.quantization.layers if layer.name.endswith(".experts")]
    assert [layer.kept for layer in experts] == [None] * 2 * SIZES["num_hidden_layers"]
    prompt = torch.randint(0, SIZES["vocab_size"], (1, PROMPT))
    logits, expected = program(prompt, torch.tensor([0])), eager(model, prompt)
    assert (logits - expected).abs().max() < 0.05 * expected.abs().max()
    assert set(program.report.backends) == {"RushlightCpu"}


def test_runners_find_what_they_ask_for():
    program = rushlight.llm.export(
        MODELS["llama"](), max_context_len=16, max_seq_len=1, full_logits=True, constant_methods={"get_bos_id": 7}
    )
    answers = {
        "get_max_seq_len": 1,
        "get_max_context_len": 16,
        "get_vocab_size": SIZES["vocab_size"],
        "get_bos_id": 7,
        "get_eos_ids": (2, 3),
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
        "enable_dynamic_shape": False,
    }
    assert {name: program.run(name) for name in answers} == answers
    assert program(torch.tensor([[5]]), torch.tensor([0])).shape == (1, 1, SIZES["vocab_size"])


def test_a_folder_becomes_a_quantized_file(tmp_path, capsys):
    torch.manual_seed(0)
    model = MODELS["llama"]().eval()
    model.save_pretrained(tmp_path / "model")
    file = tmp_path / "model.pte"
    arguments = [str(tmp_path / "model"), "--max-context-len", "32", "-o", str(file)]
    rushlight.llm.main([*arguments, "--quantize", "int8-weight", "--embeddings", "8"])
    assert capsys.readouterr().out.startswith(str(file))
    prompt = torch.randint(0, SIZES["vocab_size"], (1, PROMPT))
    logits, expected = rushlight.load(file)(prompt, torch.tensor([0])), eager(model, prompt)
    assert (logits - expected).abs().max() < 0.05 * expected.abs().max()
    # A folder without a tokenizer gives a program without one.
    with pytest.raises(ValueError, match="carries no tokenizer"):
        rushlight.llm.LLM(file)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DECODER / name, tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text("{{ messages[0].content }}")
    rushlight.llm.main(arguments)
    tokenizer = rushlight.llm.LLM(file).tokenizer
    expected = transformers.PreTrainedTokenizerFast.from_pretrained(DECODER)
    assert tokenizer.encode("Hello") == expected.encode("Hello")
    assert tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False) == "Hi"
    rushlight.llm.main([*arguments, "--tokenizer", str(DECODER)])
    chat = [{"role": "user", "content": "Hi"}]
    text = rushlight.llm.LLM(file).tokenizer.apply_chat_template(chat, tokenize=False)
    assert text == expected.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    rushlight.llm.main([*arguments, "--no-tokenizer"])
    with pytest.raises(ValueError, match="carries no tokenizer"):
        rushlight.llm.LLM(file)


def test_what_cannot_be_exported_is_refused(tmp_path):
    model = MODELS["llama"]()
    with pytest.raises(ValueError, match="max_context_len is 65: expected from 1 to 64"):
        rushlight.llm.export(model, max_context_len=65)
    with pytest.raises(ValueError, match="max_seq_len is 17: expected from 1 to 16"):
        rushlight.llm.export(model, max_context_len=16, max_seq_len=17)
    with pytest.raises(ValueError, match="give quantize"):
        rushlight.llm.export(model, embeddings=4)
    with pytest.raises(TypeError, match="cannot export a Linear"):
        rushlight.llm.export(torch.nn.Linear(2, 2))
    with pytest.raises(SystemExit, match="error: "):
        rushlight.llm.main([str(tmp_path / "none"), "-o", str(tmp_path / "none.pte")])
    assert not list(tmp_path.iterdir())


def test_an_llm_of_a_folder_is_compiled_once(tmp_path):
    cache = tmp_path / "cache"
    of = {"cache": cache, "progress": False}

    def answer(llm):
        return llm.generate("hello", temperature=0, max_new_tokens=8, ignore_eos=True).text

    program = rushlight.llm.compile(DECODER)
    program.save(tmp_path / "compiled.pte")
    expected = answer(rushlight.llm.LLM(tmp_path / "compiled.pte"))
    assert answer(rushlight.llm.LLM(DECODER, **of)) == expected
    (kept,) = cache.iterdir()
    written = kept.stat().st_ino
    assert answer(rushlight.llm.LLM(str(DECODER), **of)) == expected and kept.stat().st_ino == written
    short = rushlight.llm.LLM(DECODER, max_context_len=32, quantize="8da4w", **of)
    assert short.max_context_len == 32 and len(list(cache.iterdir())) == 2
    with pytest.raises(TypeError, match="needs its path"):
        rushlight.llm.LLM((tmp_path / "compiled.pte").read_bytes(), quantize="8da4w")
    with pytest.raises(rushlight.Error, match="name"):
        rushlight.llm.LLM(DECODER, cache="")
    # A GGUF file without a tokenizer has it beside it, as for the command line.
    shutil.copy(DECODER / "model.gguf", tmp_path / "model.gguf")
    shutil.copy(DECODER / "tokenizer.json", tmp_path / "tokenizer.json")
    assert answer(rushlight.llm.LLM(tmp_path / "model.gguf", **of)) == expected
    with pytest.raises(TypeError, match="max_seq_len is an option of compiling a folder"):
        rushlight.llm.LLM(tmp_path / "compiled.pte", max_context_len=32, max_seq_len=8)
    # The context of a program is shortened when it is loaded.
    file = tmp_path / "compiled.pte"
    for source in (file, file.read_bytes()):
        short = rushlight.llm.LLM(source, DECODER, max_context_len=16)
        assert short.max_context_len == 16
        assert short.generate([3, 4], temperature=0, ignore_eos=True).usage.completion_tokens == 15
    for positions, problem in ((0, "1 or more"), (10**6, "larger --max-context-len"), (-1, "an int from 0"), ("a", "an int from 0")):
        with pytest.raises(ValueError, match=problem):
            rushlight.llm.LLM(file, max_context_len=positions)
    with pytest.raises(TypeError, match="did you mean 'max_context_len'"):
        rushlight.llm.LLM(DECODER, max_context_length=32)
    with pytest.raises(ValueError, match="quantize must be"):
        rushlight.llm.LLM(DECODER, quantize="int5")


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_embeddings_are_those_of_transformers(pooling, tmp_path):
    network = transformers.AutoModel.from_pretrained(DECODER, dtype=torch.float32).eval()
    llm = rushlight.llm.LLM(DECODER, hidden_states=True, cache=tmp_path, progress=False)
    texts = ["a text", "another text", "a"]
    embedded = torch.tensor(llm.embed(texts, pooling=pooling).tolist())
    for text, got in zip(texts, embedded, strict=True):
        tokens = torch.tensor([llm.tokenizer.encode(text)])
        with torch.no_grad():
            states = network(tokens).last_hidden_state[0]
        pooled = states[-1] if pooling == "last" else states.mean(0)
        torch.testing.assert_close(got, pooled / pooled.norm(), rtol=1e-4, atol=1e-5)
        short = torch.tensor(llm.embed(text, pooling=pooling, dimensions=5).tolist())
        torch.testing.assert_close(short, pooled[:5] / pooled[:5].norm(), rtol=1e-4, atol=1e-5)
    for arguments, error in [
        ({"texts": "a", "pooling": "first"}, "pooling must be"),
        ({"texts": "a", "dimensions": 0}, "dimensions must be an int from 1 to"),
        ({"texts": "a" * 5000}, "context"),
    ]:
        with pytest.raises(ValueError, match=error):
            llm.embed(**arguments)
    with pytest.raises(ValueError, match="returns logits"):
        rushlight.llm.LLM(DECODER, cache=tmp_path, progress=False).embed("a")
