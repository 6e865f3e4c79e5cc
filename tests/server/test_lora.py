"""Adapters are models of their own to OpenAI's client."""

import concurrent.futures
import json

import openai
import pytest
import tokenizers
from rushlight_server import ADAPTERS, KEY, MODEL, compiled, serving

NAMES = ["llama-all", "llama-patterns"]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    program = compiled(tmp_path_factory.mktemp("lora"), "--lora-rank", "8")
    modules = [option for name in NAMES for option in ("--lora-module", f"{name}={ADAPTERS / name}")]
    with serving(program, *modules, "--sessions", "3") as (_, address):
        with openai.OpenAI(base_url=address + "/v1", api_key=KEY, max_retries=0) as client:
            yield client


def test_adapters_are_listed(client):
    models = {model.id: model.model_dump().get("parent") for model in client.models.list()}
    assert models == {"tiny": None, "llama-all": "tiny", "llama-patterns": "tiny"}
    assert client.models.retrieve("llama-all").id == "llama-all"
    with pytest.raises(openai.NotFoundError, match="`tiny`, `llama-all`, `llama-patterns`"):
        client.models.retrieve("other")
    with pytest.raises(openai.NotFoundError, match="`tiny`, `llama-all`, `llama-patterns`"):
        client.completions.create(model="llama-al", prompt=[1, 2])


def test_answers_have_the_adapter_that_the_request_names(client):
    """At once and in turns, so that sessions are batched, kept and given up."""
    samples = {name: json.loads((ADAPTERS / name / "expected.json").read_text()) for name in NAMES}
    samples["tiny"] = json.loads((MODEL / "expected.json").read_text())

    def answer(model):
        sample = samples[model]
        ask = dict(prompt=sample["prompt"], max_tokens=40, extra_body={"ignore_eos": True})
        return model, client.completions.create(model=model, **ask).choices[0].text

    tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    expected = {model: tokenizer.decode(sample["greedy"][:40]) for model, sample in samples.items()}
    assert len(set(expected.values())) == 3
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for model, text in pool.map(answer, [*samples] * 4):
            assert text == expected[model], model
