"""OpenAI's own client, sync and async, talks to `rushlight llm serve` with a tiny Llama.

    RUSHLIGHT=target/checked/rushlight .venv/bin/python -m pytest tests/server
"""

import asyncio
import re

import openai
import pytest
from rushlight_server import GREEDY, KEY


@pytest.fixture
def client(address):
    with openai.OpenAI(base_url=address, api_key=KEY, max_retries=0) as client:
        yield client


def test_the_model_is_listed(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "rushlight"
    with pytest.raises(openai.NotFoundError, match="expected `tiny`"):
        client.models.retrieve("other")


def test_completions(client):
    ask = dict(model="tiny", prompt=GREEDY["prompt"], max_tokens=30, extra_body={"ignore_eos": True})
    answer = client.completions.create(**ask)
    assert answer.choices[0].text == GREEDY["greedy"][:30]
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 30
    pieces = [chunk.choices[0].text for chunk in client.completions.create(**ask, stream=True)]
    assert len(pieces) > 10 and "".join(pieces) == GREEDY["greedy"][:30]
    scored = client.completions.create(**{**ask, "max_tokens": 2}, echo=True, logprobs=1)
    assert len(scored.choices[0].logprobs.tokens) == scored.usage.total_tokens
    assert scored.choices[0].logprobs.token_logprobs[0] is None


def test_answers_without_a_limit_fill_the_context(client):
    ask = dict(model="tiny", prompt="abc", extra_body={"ignore_eos": True})
    # The last token takes no position.
    answer = client.completions.create(**ask, max_tokens=-1)
    assert answer.choices[0].finish_reason == "length" and answer.usage.total_tokens == 81
    ask = dict(model="tiny", messages=[{"role": "user", "content": "Hello"}], extra_body={"ignore_eos": True})
    endless = [client.chat.completions.create(**ask, max_tokens=tokens).usage.total_tokens for tokens in (-1, None)]
    assert endless == [81, 81]


def test_conversations(client):
    messages = [{"role": "user", "content": "Hello"}]
    ask = dict(model="tiny", messages=messages, max_completion_tokens=10, extra_body={"ignore_eos": True})
    answer = client.chat.completions.create(**ask, logprobs=True, top_logprobs=3)
    text = answer.choices[0].message.content
    assert text and answer.usage.completion_tokens == 10
    assert [token.top_logprobs[0].token for token in answer.choices[0].logprobs.content] == [
        token.token for token in answer.choices[0].logprobs.content
    ]
    stream = client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
    assert chunks[-1].usage.completion_tokens == 10
    several = client.chat.completions.create(**{**ask, "n": 2, "temperature": 1.0, "seed": 3})
    assert [choice.index for choice in several.choices] == [0, 1]


def test_tools_are_shown_to_the_template(client):
    add = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    messages = [{"role": "user", "content": "Hello"}]
    for choice in ("auto", "none"):
        answer = client.chat.completions.create(
            model="tiny", messages=messages, tools=[add], tool_choice=choice, max_tokens=3, extra_body={"ignore_eos": True}
        )
        assert answer.choices[0].message.content
    # The model has no letter that JSON needs.
    with pytest.raises(openai.BadRequestError, match="none of the model's tokens"):
        client.chat.completions.create(model="tiny", messages=messages, tools=[add], tool_choice="required")


def test_answers_have_the_form_that_is_asked_for(client):
    answer = client.completions.create(
        model="tiny", prompt="abc", max_tokens=40, temperature=1.0, extra_body={"guided_regex": "[a-c]{3}-[X-Z]{2}!"}
    )
    assert re.fullmatch("[a-c]{3}-[X-Z]{2}!", answer.choices[0].text)
    with pytest.raises(openai.BadRequestError, match="grammar"):
        client.completions.create(model="tiny", prompt="a", extra_body={"guided_json": {"type": "nonsense"}})


def test_errors_are_those_of_the_client(address, client):
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model="tiny", prompt="a", temperature=-1)
    with pytest.raises(openai.BadRequestError, match="maximum context length is 80 tokens") as full:
        client.completions.create(model="tiny", prompt="a" * 1000)
    assert full.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="-1 for as many as fit"):
        client.completions.create(model="tiny", prompt="a", max_tokens=-2)
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("other")
    assert missing.value.code == "model_not_found"
    with openai.OpenAI(base_url=address, api_key="another", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            stranger.models.list()


def test_async_clients_take_turns(address):
    async def ask(client, seed):
        ask = dict(model="tiny", prompt="abc", max_tokens=20, temperature=1.0, seed=seed, extra_body={"ignore_eos": True})
        stream = await client.completions.create(**ask, stream=True)
        streamed = "".join([chunk.choices[0].text async for chunk in stream])
        return streamed, (await client.completions.create(**ask)).choices[0].text

    async def all():
        async with openai.AsyncOpenAI(base_url=address, api_key=KEY, max_retries=0) as client:
            return await asyncio.gather(*[ask(client, seed) for seed in range(12)])

    answers = asyncio.run(all())
    assert all_equal(answers)
    assert len({streamed for streamed, _ in answers}) > 6


def all_equal(pairs):
    return [a for a, _ in pairs] == [b for _, b in pairs]
