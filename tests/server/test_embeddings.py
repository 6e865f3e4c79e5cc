"""Embeddings by OpenAI's client, compared with the hidden states that transformers computes."""

import base64
import math
import struct

import openai
import pytest
from rushlight_server import KEY, ROOT, compiled, serving

TEXTS = ["Hello", "a longer text, of many letters.", "a"]
# With the norms, scales and layers that differ most, and a window that the longest call fits.
FAMILIES = ["llama", "llama-3.2", "qwen3", "gemma2", "granite", "lfm2"]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory):
    """The model of transformers, a client of each pooling, and the program."""
    import torch
    import transformers

    folder = ROOT / "tests/decoders" / request.param
    network = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    # Calls of a few tokens, so that texts take several.
    options = ["--hidden-states", "--max-seq-len", "8"]
    program = compiled(tmp_path_factory.mktemp(request.param), *options, model=folder)
    return network, program


def expected(network, tokens, pooling, dimensions=None):
    import torch

    with torch.no_grad():
        states = network(torch.tensor([tokens]), use_cache=False).last_hidden_state[0].double()
    pooled = states[-1] if pooling == "last" else states.mean(0)
    pooled = pooled[:dimensions]
    return (pooled / pooled.norm()).tolist()


def assert_close(found, expected):
    assert len(found) == len(expected)
    assert max(abs(a - b) for a, b in zip(found, expected)) < 1e-5
    assert math.isclose(sum(x * x for x in found), 1.0, rel_tol=1e-5)


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_embeddings_are_those_of_transformers(family, pooling):
    network, program = family
    lists = [[1, 5, 9, 30, 44, 3, 17, 22, 61, 40, 12], [7], [11, 12, 13] * 9]
    with serving(program, "--pooling", pooling) as (_, address):
        with openai.OpenAI(base_url=address + "/v1", api_key=KEY, max_retries=0) as client:
            # The client asks for base64 by itself, and decodes it.
            for encoding in (openai.NOT_GIVEN, "float"):
                answer = client.embeddings.create(model="tiny", input=lists, encoding_format=encoding)
                assert [item.index for item in answer.data] == [0, 1, 2]
                assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(map(len, lists))
                for item, tokens in zip(answer.data, lists):
                    assert_close(item.embedding, expected(network, tokens, pooling))
            (item,) = client.embeddings.create(model="tiny", input=lists[0], dimensions=5).data
            assert_close(item.embedding, expected(network, lists[0], pooling, 5))


@pytest.fixture(scope="module")
def embedding_server(tmp_path_factory):
    with serving(compiled(tmp_path_factory.mktemp("embeddings"), "--hidden-states")) as (_, address):
        with openai.OpenAI(base_url=address + "/v1", api_key=KEY, max_retries=0) as client:
            yield client


def test_texts(embedding_server):
    client = embedding_server
    several = client.embeddings.create(model="tiny", input=TEXTS).data
    for text, item in zip(TEXTS, several):
        (alone,) = client.embeddings.create(model="tiny", input=text).data
        assert alone.embedding == item.embedding
    raw = client.embeddings.with_raw_response.create(model="tiny", input=TEXTS[0], encoding_format="base64")
    text = raw.http_response.json()["data"][0]["embedding"]
    numbers = struct.unpack("<32f", base64.b64decode(text, validate=True))
    assert list(numbers) == several[0].embedding


def test_any_number_of_texts(embedding_server):
    """They are computed in batches of 128, and sent batch by batch."""
    client = embedding_server
    letters = [letter * length for letter in "abc" for length in (1, 2, 3)]
    answers = [client.embeddings.create(model="tiny", input=text) for text in letters]
    alone = [answer.data[0].embedding for answer in answers]
    tokens = [answer.usage.prompt_tokens for answer in answers]
    for count in (127, 128, 129, 256, 257, 1000):
        texts = [letters[index % 9] for index in range(count)]
        for encoding in (openai.NOT_GIVEN, "float"):
            answer = client.embeddings.create(model="tiny", input=texts, encoding_format=encoding)
            assert [item.index for item in answer.data] == list(range(count))
            for index, item in enumerate(answer.data):
                assert_close(item.embedding, alone[index % 9])
            assert answer.usage.prompt_tokens == sum(tokens[index % 9] for index in range(count))
    lists = client.embeddings.create(model="tiny", input=[[5]] * 200).data
    assert len(lists) == 200 and lists[0].embedding == lists[-1].embedding


def test_a_failure_after_the_first_batch_cuts_the_answer_off(tmp_path):
    """Its status has been sent already, so that the client must not take it for a whole one."""
    with serving(compiled(tmp_path, "--hidden-states"), "--timeout", "1") as (_, address):
        with openai.OpenAI(base_url=address + "/v1", api_key=KEY, max_retries=0) as client:
            with pytest.raises(openai.APIError) as error:
                client.embeddings.create(model="tiny", input=[[5] * 80] * 5000)
            assert isinstance(error.value, (openai.APIConnectionError, openai.InternalServerError))


def test_errors(embedding_server, address):
    client = embedding_server
    for wrong, what in (
        (dict(input=[]), "at least one text"),
        (dict(input=["a"] * 300 + ["a" * 100]), "context"),
        (dict(input=[[]]), "at least one token"),
        (dict(input=[64]), "tokens below 64"),
        (dict(input="a" * 100), "context"),
        (dict(input="a", dimensions=33), "1 to 32"),
        (dict(input="a", dimensions=0), "1 to 32"),
        (dict(input="a", encoding_format="int8"), "base64"),
        (dict(input={"text": "a"}), "expected a text"),
    ):
        with pytest.raises(openai.BadRequestError, match=what):
            client.embeddings.create(model="tiny", **wrong)
    with pytest.raises(openai.BadRequestError, match="without --hidden-states"):
        client.completions.create(model="tiny", prompt="a")
    with pytest.raises(openai.BadRequestError, match="without --hidden-states"):
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "a"}])
    with openai.OpenAI(base_url=address, api_key=KEY, max_retries=0) as generating:
        with pytest.raises(openai.BadRequestError, match="compile with --hidden-states"):
            generating.embeddings.create(model="tiny", input="a")
