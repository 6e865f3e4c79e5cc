"""`rushlight.compat.llm_runner` beside ExecuTorch's own runner, with a program that both run."""

import json
import pathlib
import shutil

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
theirs = pytest.importorskip("executorch.extension.llm.runner")

import rushlight.llm
from rushlight.compat import llm_runner as ours

DECODER = pathlib.Path(__file__).resolve().parents[3] / "tests" / "decoders" / "llama"
TEXT = json.loads((DECODER / "text.json").read_text())
PROMPT = TEXT["prompt"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runner")
    shutil.copy(DECODER / "tokenizer.json", folder)
    rushlight.llm.export(DECODER, max_context_len=128, backend="portable").save(folder / "llama.pte")
    return folder


def test_executorch_gives_the_same_logits_with_a_tokenizer_inside(folder):
    portable_lib = pytest.importorskip("executorch.extension.pybindings.portable_lib")
    whole = (folder / "llama.pte").read_bytes()
    assert whole.count((DECODER / "tokenizer.json").read_bytes()) == 1
    bare = rushlight.llm.export(DECODER, max_context_len=128, backend="portable", tokenizer=False).buffer
    tokens, start = torch.tensor([[5, 6, 7]]), torch.tensor([0])
    logits = [
        portable_lib._load_for_executorch_from_buffer(program).forward((tokens, start))[0] for program in (whole, bare)
    ]
    assert torch.equal(*logits)
    torch.testing.assert_close(torch.from_dlpack(rushlight.load(whole)(tokens, start)), logits[0])


def runner(module, folder):
    return module.TextLLMRunner(str(folder / "llama.pte"), str(folder / "tokenizer.json"))


def answer(module, runner, prompt, **options):
    """What callbacks got, and the counts; or the exception."""
    pieces, counts = [], []

    def stats(given):
        counts.append((given.num_prompt_tokens, given.num_generated_tokens))

    try:
        runner.generate(prompt, module.GenerationConfig(temperature=0.0, **options), pieces.append, stats)
    except RuntimeError:
        return "RuntimeError", []
    return pieces, counts


def conversation(module, folder):
    made = runner(module, folder)
    answers = [
        answer(module, made, PROMPT, max_new_tokens=10),
        # It goes on.
        answer(module, made, PROMPT, max_new_tokens=4, echo=False),
    ]
    for options in ({"seq_len": 12}, {"seq_len": 12, "max_new_tokens": 3}, {"warming": True, "max_new_tokens": 2}):
        made.reset()
        answers.append(answer(module, made, PROMPT, **options))
    made.reset()
    made.prefill(PROMPT[:4], module.GenerationConfig())
    answers.append(answer(module, made, PROMPT[4:], max_new_tokens=4))
    for prompt, options in (("", {}), (PROMPT * 30, {}), (PROMPT, {"seq_len": 7})):
        made.reset()
        answers.append(answer(module, made, prompt, **options))
    made.reset()
    made.prefill(PROMPT, module.GenerationConfig())
    answers.append(answer(module, made, "", max_new_tokens=4)[0])
    return answers


def test_a_conversation_is_that_of_executorch(folder):
    assert conversation(ours, folder) == conversation(theirs, folder)


def test_an_answer_ends_with_the_model(folder):
    (their_pieces, their_counts), (pieces, counts) = (
        answer(module, runner(module, folder), PROMPT) for module in (theirs, ours)
    )
    # The text of the token that ends it does not reach the callback.
    assert their_pieces == [*pieces, "</s>"]
    assert counts == their_counts


@pytest.mark.parametrize("module", [ours, theirs], ids=["rushlight", "executorch"])
def test_callbacks_may_stop_and_raise(module, folder):
    made = runner(module, folder)
    pieces = []

    def stop(piece):
        pieces.append(piece)
        made.stop()

    made.generate(PROMPT, module.GenerationConfig(temperature=0, echo=False), stop)
    assert 1 <= len(pieces) <= 2
    made.reset()

    def fail(piece):
        raise KeyError(piece)

    with pytest.raises(KeyError):
        made.generate(PROMPT, module.GenerationConfig(temperature=0), fail)


def test_configurations_are_alike():
    assert repr(ours.GenerationConfig()) == repr(theirs.GenerationConfig())
    for seq_len in (-1, 50, 512, 5000):
        for max_new_tokens in (-1, 0, 200):
            configs = [module.GenerationConfig(seq_len=seq_len, max_new_tokens=max_new_tokens) for module in (ours, theirs)]
            assert repr(configs[0]) == repr(configs[1])
            mine, other = (config.resolve_max_new_tokens(1024, 100) for config in configs)
            assert mine == other
    fields = {name: getattr(theirs.GenerationConfig(), name) for name in dir(theirs.GenerationConfig()) if name[0] != "_"}
    for name, value in fields.items():
        if not callable(value):
            assert getattr(ours.GenerationConfig(), name) == pytest.approx(value)


def test_statistics_are_alike(folder):
    kept = []

    def stats(module):
        runner(module, folder).generate(
            PROMPT, module.GenerationConfig(temperature=0, max_new_tokens=40), None, kept.append
        )
        # It is the runner's own, and ends with the runner in ExecuTorch.
        return kept[-1]

    mine = stats(ours)
    public = {name for name in dir(theirs.Stats) if name[0] != "_"}
    assert public <= set(dir(mine))
    assert mine.model_load_start_ms <= mine.model_load_end_ms <= mine.inference_start_ms <= mine.token_encode_end_ms
    assert mine.token_encode_end_ms <= mine.prompt_eval_end_ms <= mine.first_token_ms <= mine.inference_end_ms
    assert mine.first_token_ms <= mine.model_execution_end_ms <= mine.inference_end_ms
    texts = []
    runner(theirs, folder).generate(
        PROMPT,
        theirs.GenerationConfig(temperature=0, max_new_tokens=40),
        None,
        lambda given: texts.extend([given.to_json_string(), repr(given)]),
    )
    required = {name for name in json.loads(texts[0]) if not name.endswith("per_sec")}
    got = json.loads(mine.to_json_string())
    assert required <= set(got)
    assert (got["prompt_tokens"], got["generated_tokens"]) == (len(PROMPT), 39)
    assert repr(mine).rpartition("=")[0] == texts[1].rpartition("=")[0]


def test_what_cannot_be_loaded_is_a_runtime_error(folder):
    model, tokenizer = str(folder / "llama.pte"), str(folder / "tokenizer.json")
    for module in (ours, theirs):
        with pytest.raises(RuntimeError, match="Failed to load tokenizer"):
            module.TextLLMRunner(model, str(folder / "none.json"))
        with pytest.raises(RuntimeError):
            module.TextLLMRunner(str(folder / "none.pte"), tokenizer)
    made = runner(ours, folder)
    assert not made.is_loaded()
    made.load()
    assert made.is_loaded() and made.get_vocab_size() == 64
