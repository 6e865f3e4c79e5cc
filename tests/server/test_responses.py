"""OpenAI's own client reads responses of `rushlight llm serve`, whole and as streams of events."""

import asyncio
import json
import shutil
import urllib.request

import openai
import pytest
from rushlight_server import KEY, MODEL, compiled, serving

TOKENS = {"max_output_tokens": 10, "extra_body": {"ignore_eos": True}}


@pytest.fixture
def client(address):
    with openai.OpenAI(base_url=address, api_key=KEY, max_retries=0) as client:
        yield client


def chat(client, messages):
    answer = client.chat.completions.create(model="tiny", messages=messages, max_tokens=10, extra_body={"ignore_eos": True})
    return answer.choices[0].message.content


def test_texts_are_those_of_chat_completions(client):
    expected = chat(client, [{"role": "user", "content": "Hello"}])
    response = client.responses.create(model="tiny", input="Hello", metadata={"a": "b"}, **TOKENS)
    assert response.output_text == expected
    assert (response.id[:5], response.object, response.model, response.error) == ("resp_", "response", "tiny", None)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (response.max_output_tokens, response.temperature, response.metadata) == (10, 0.0, {"a": "b"})
    assert response.usage.output_tokens == 10 and response.usage.total_tokens == 10 + response.usage.input_tokens
    (message,) = response.output
    assert (message.type, message.role, message.status) == ("message", "assistant", "incomplete")
    again = client.responses.create(model="tiny", input="Hello", **TOKENS)
    assert again.output_text == expected and again.id != response.id
    assert again.usage.input_tokens_details.cached_tokens == again.usage.input_tokens - 1


def test_items_are_messages_of_a_conversation(client):
    messages = [
        {"role": "system", "content": "Be."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "C?"},
    ]
    expected = chat(client, messages)
    parts = [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}, *messages[2:]]
    for ask in (
        {"input": messages},
        {"input": messages[1:], "instructions": "Be."},
        {"input": [{"type": "message", "role": "developer", "content": "Be."}, *messages[1:]]},
        {"input": parts, "instructions": "Be."},
    ):
        assert client.responses.create(model="tiny", **ask, **TOKENS).output_text == expected
    # The output of a response is input of the next one.
    first = client.responses.create(model="tiny", input=messages[:2], **TOKENS)
    then = client.responses.create(model="tiny", input=[*messages[:2], *first.output, messages[3]], **TOKENS)
    answer = {"role": "assistant", "content": first.output_text}
    assert then.output_text == chat(client, [*messages[:2], answer, messages[3]])


def test_a_stream_has_the_events_of_a_message(client):
    whole = client.responses.create(model="tiny", input="Hello", **TOKENS)
    events = list(client.responses.create(model="tiny", input="Hello", stream=True, **TOKENS))
    kinds = [event.type for event in events]
    deltas = kinds.count("response.output_text.delta")
    assert deltas > 3
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * deltas,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == events[-4].text == events[-3].part.text
    (message,) = events[-1].response.output
    assert message == events[-2].item and {event.item_id for event in events[3:-2]} == {message.id}
    assert events[-1].response.output_text == text and events[-1].response.usage == whole.usage
    assert events[0].response.id == events[-1].response.id and events[0].response.status == "in_progress"


def test_events_have_names(root):
    body = json.dumps({"input": "Hello", "max_output_tokens": 2, "stream": True}).encode()
    ask = urllib.request.Request(root + "/v1/responses", body, {"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(ask) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        events = answer.read().decode().removesuffix("\n\n").split("\n\n")
    for event in events:
        name, data = event.split("\n")
        assert name.removeprefix("event: ") == json.loads(data.removeprefix("data: "))["type"]


def test_the_helper_accumulates_a_complete_response(client):
    # A form ends the answer, so that it is complete.
    ask = {"model": "tiny", "input": "Hello", "extra_body": {"guided_regex": "[a-c]{6}"}}
    whole = client.responses.create(**ask)
    assert whole.status == "completed" and whole.incomplete_details is None and len(whole.output_text) == 6
    with client.responses.stream(**ask) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots[-1] == final.output_text == whole.output_text and final.status == "completed"

    async def text():
        async with openai.AsyncOpenAI(base_url=client.base_url, api_key=KEY, max_retries=0) as asynchronous:
            async with asynchronous.responses.stream(**ask) as stream:
                return (await stream.get_final_response()).output_text

    assert asyncio.run(text()) == whole.output_text


def test_log_probabilities(client):
    include = {"include": ["message.output_text.logprobs"], "top_logprobs": 3}
    response = client.responses.create(model="tiny", input="Hello", **include, **TOKENS)
    scores = response.output[0].content[0].logprobs
    assert len(scores) == 10
    assert all(score.logprob <= 0 and score.top_logprobs[0].token == score.token for score in scores)
    events = list(client.responses.create(model="tiny", input="Hello", stream=True, **include, **TOKENS))
    streamed = [score for event in events if event.type == "response.output_text.delta" for score in event.logprobs]
    assert [score.token for score in streamed] == [score.token for score in scores]
    assert events[-1].response.output[0].content[0].logprobs == scores


def with_characters(folder):
    """The tiny Llama with tokens for the characters of JSON, in place of capital letters, and more positions."""
    source = folder / "json"
    shutil.copytree(MODEL, source)
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    for letter, character in zip("STUVWXY", '{}"[]_\\', strict=True):
        vocabulary[character] = vocabulary.pop(letter)
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 400}))
    return source


@pytest.fixture(scope="module")
def json_client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("responses")
    source = with_characters(folder)
    with serving(compiled(folder, model=source, context=400, tokenizer=source)) as (_, address):
        with openai.OpenAI(base_url=address + "/v1", api_key=KEY, max_retries=0) as client:
            yield client


def test_texts_have_the_form_that_is_asked_for(json_client):
    schema = {"type": "object", "properties": {"a": {"enum": ["b", "c"]}}, "required": ["a"], "additionalProperties": False}
    form = {"format": {"type": "json_schema", "name": "answer", "strict": True, "schema": schema}}
    response = json_client.responses.create(model="tiny", input="Hi", text=form)
    assert json.loads(response.output_text)["a"] in "bc"
    assert response.text.format.schema_ == schema and response.status == "completed"


def test_tools_are_called(json_client):
    parameters = {"type": "object", "properties": {"a": {"enum": ["b", "c"]}}, "required": ["a"], "additionalProperties": False}
    tool = {"type": "function", "name": "pick", "parameters": parameters, "strict": True}
    ask = {"model": "tiny", "input": "Hi", "tools": [tool], "tool_choice": {"type": "function", "name": "pick"}}
    response = json_client.responses.create(**ask)
    (call,) = response.output
    assert (call.type, call.name, call.status) == ("function_call", "pick", "completed")
    assert json.loads(call.arguments)["a"] in "bc" and response.output_text == ""
    events = list(json_client.responses.create(**ask, stream=True))
    assert [event.type for event in events[2:]] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert events[4].arguments == call.arguments == events[-1].response.output[0].arguments
    with json_client.responses.stream(**ask) as stream:
        assert stream.get_final_response().output[0].arguments == call.arguments
    # The model reads the output of the tool.
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "7"}
    user = {"role": "user", "content": "Hi"}
    then = json_client.responses.create(model="tiny", input=[user, *response.output, output], max_output_tokens=3)
    assert then.usage.input_tokens > response.usage.input_tokens


def test_requests_that_need_kept_responses_are_refused(client):
    message = {"role": "user", "content": "Hello"}
    for wrong, what, param in (
        ({"previous_response_id": "resp_1"}, "responses are not kept: send the earlier messages", "previous_response_id"),
        ({"conversation": "conv_1"}, "conversations are not kept", "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompts are not kept", "prompt"),
        ({"background": True}, "responses are not kept", "background"),
        ({"truncation": "auto"}, "expected `disabled`", "truncation"),
        ({"extra_body": {"n": 2}}, "expected 1 answer", "n"),
        ({"top_logprobs": 3}, "message.output_text.logprobs", "top_logprobs"),
        ({"tools": [{"type": "web_search"}]}, "expected functions", "tools"),
        ({"text": {"format": {"type": "nonsense"}}}, "json_schema", "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "expected `schema`", "text.format"),
        ({"temperature": -1}, "temperature", "temperature"),
        ({"input": []}, "at least one message", "input"),
        ({"input": [{**message, "role": "tool"}]}, "role", "input"),
        ({"input": [{**message, "content": [{"type": "input_image", "image_url": "x"}]}]}, "texts alone", "input"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "items are not kept", "input"),
    ):
        with pytest.raises(openai.BadRequestError, match=what) as error:
            client.responses.create(model="tiny", **{"input": "Hello", **wrong})
        assert error.value.param == param
    with pytest.raises(openai.BadRequestError, match="maximum context length is 80 tokens") as full:
        client.responses.create(model="tiny", input="a" * 1000)
    assert full.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="expected a text or a list of messages"):
        client.responses.create(model="tiny")
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")


def test_a_failure_is_the_last_event(program):
    with serving(program, "--timeout", "0") as (_, address):
        with openai.OpenAI(base_url=address + "/v1", api_key=KEY, max_retries=0) as client:
            with pytest.raises(openai.InternalServerError, match="longer than the server allows"):
                client.responses.create(model="tiny", input="Hello")
            events = list(client.responses.create(model="tiny", input="Hello", stream=True))
    assert [event.type for event in events] == ["response.created", "response.in_progress", "response.failed"]
    failed = events[-1].response
    assert (failed.status, failed.error.code, failed.output) == ("failed", "server_error", [])
    assert "longer than the server allows" in failed.error.message


def test_a_stream_tells_a_wrong_request_from_a_failure_of_the_server(client):
    """The model has no letter that JSON needs, which is known when its answer begins."""
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
    ask = {"model": "tiny", "input": "Hello", "tools": [tool], "tool_choice": "required"}
    with pytest.raises(openai.BadRequestError, match="none of the model's tokens"):
        client.responses.create(**ask)
    *_, last = client.responses.create(**ask, stream=True)
    assert (last.type, last.response.error.code) == ("response.failed", "invalid_prompt")
