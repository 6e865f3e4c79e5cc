"""Chat templates of published models, which the package xinference brings: the text is that of transformers, whatever the template
does with system messages, tools, calls of them and what they return. `cargo xtask setup tokenizers` installs it."""

import json
import pathlib
import shutil

import pytest
from transformers.utils import chat_template_utils

from rushlight import llm

ROOT = pathlib.Path(__file__).resolve().parents[2]
(MODELS,) = ROOT.glob(".venv-tokenizers/lib/*/site-packages/xinference/model/llm/models")
TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "The weather of a place, \"now\" & <later>.",
        "parameters": {"type": "object", "properties": {
            "place": {"type": "string", "description": "A city"}, "days": {"type": "integer", "default": 1}}, "required": ["place"]},
    }},
    {"type": "function", "function": {"name": "time", "description": "Zeit für Köln", "parameters": {"type": "object", "properties": {}}}},
]  # fmt: skip
CALL = {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": {"place": "Köln", "days": 2}}}
CONVERSATIONS = {
    "question": [{"role": "user", "content": "  Hello there\nand again  "}],
    "system": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}],
    "answered": [
        {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}, {"role": "user", "content": "And 'times' \"two\" \\ 👍?"},
    ],
    "thought": [
        {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "<think>\nTwo and two.\n</think>\n\n4"},
        {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nYes", "reasoning_content": "Hm."},
    ],
    "thinking": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "thinking": "T"}, {"role": "user", "content": "c"}],
    "reasoning": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning": "R"}, {"role": "user", "content": "c"}],
    "called": [
        {"role": "system", "content": "Use tools."}, {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "name": "weather", "tool_call_id": "call00001", "content": "{\"degrees\": 12}"},
        {"role": "assistant", "content": "12 degrees."}, {"role": "user", "content": "Thanks"},
    ],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": " this?"}]}],
}  # fmt: skip


def templates():
    """The templates of the package, each with the name of one of its models."""
    found = {}

    def walk(name, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                if key == "chat_template" and isinstance(inner, str) and "{%" in inner:
                    found.setdefault(inner, name)
                walk(name, inner)
        elif isinstance(value, list):
            for inner in value:
                walk(name, inner)

    for file in sorted(MODELS.glob("*.json")):
        walk(file.stem, json.loads(file.read_text()))
    return {f"{name}-{index}": template for index, (template, name) in enumerate(found.items())}


TEMPLATES = templates()


def test_there_are_templates():
    with_tools = [template for template in TEMPLATES.values() if "tools" in template]
    assert len(TEMPLATES) == 85 and len(with_tools) >= 25, (len(TEMPLATES), len(with_tools))


@pytest.mark.parametrize("name", TEMPLATES)
def test_texts_are_those_of_transformers(name, tmp_path):
    template = TEMPLATES[name]
    shutil.copy(ROOT / "tests/decoders/llama/tokenizer.json", tmp_path)
    settings = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = llm.Tokenizer.load(tmp_path)
    rendered = 0
    for label, messages in CONVERSATIONS.items():
        for tools in (None, TOOLS):
            for prompt in (True, False):
                where = f"{name}: {label}, tools {tools is not None}, prompt {prompt}"
                expected = problem = None
                try:
                    (expected,), _ = chat_template_utils.render_jinja_template(
                        [messages], tools=tools, chat_template=template, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>"
                    )
                except Exception as error:  # noqa: BLE001 - templates raise what they like, and jinja's errors have no common kind
                    problem = error
                try:
                    got = tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=prompt, tokenize=False)
                except ValueError as error:
                    assert problem is not None, f"{where}: {error}"
                    continue
                assert problem is None, f"{where}: transformers says {problem!r}, got {got!r}"
                assert got == expected, where
                rendered += 1
    assert rendered
