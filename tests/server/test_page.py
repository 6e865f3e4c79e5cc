"""The page of `rushlight llm serve` in headless Chromium."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from browser import CHROMIUM, opened
from rushlight_server import ADAPTERS, KEY, compiled, serving

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: there is no Chromium")

# Screenshots of the page are written to this folder, if it is given.
SCREENSHOTS = os.environ.get("RUSHLIGHT_SCREENSHOTS")

MARKDOWN = """# Rushlights

A *rushlight* is a **candle** of `rush` and ~~wax~~ fat, \\*not\\* a lamp; see [the site](https://example.org/a_(b)) or
https://example.org/c. A snake_case_name and 2 * 3 * 4 stay.

1. Peel the rush:
   - leave one strip,
   - dry it.
2. Dip it.

> It burns for **an hour**.

| length | time |
|---|---|
| 30 cm | `20 min` |

```html
<b>code</b> & *no emphasis*
```

<img src=x onerror="window.attacked = 1"><script>window.attacked = 2</script>
<a href="javascript:window.attacked = 3">a</a> [click](javascript:window.attacked=4) ![picture](https://example.org/p.png)
"""

# Answers with the texts of `window.answers`, one by one, in pieces; waits for `window.goes` after each piece.
ANSWERS = """
window.asked = [];
window.goes = () => Promise.resolve();
const real = window.fetch;
window.fetch = (path, options) => {
  if (path !== "/v1/chat/completions") return real(path, options);
  window.asked.push(JSON.parse(options.body));
  const pieces = window.answers.shift();
  const encoder = new TextEncoder();
  let count = 0;
  const body = new ReadableStream({
    start(controller) { options.signal.addEventListener("abort", () => controller.error(options.signal.reason)); },
    async pull(controller) {
      await window.goes(count);
      if (options.signal.aborted) return;
      const send = (json) => controller.enqueue(encoder.encode(`data: ${typeof json === "string" ? json : JSON.stringify(json)}\\n\\n`));
      if (count < pieces.length) return send({ choices: [{ delta: { content: pieces[count++] } }] });
      send({ choices: [], usage: { prompt_tokens: 3, completion_tokens: count } });
      send("[DONE]");
      controller.close();
    },
  });
  return Promise.resolve(new Response(body));
};
"""

SAY = "(text) => { $('text').value = text; $('form').requestSubmit(); }"


def on_page(root, folder, act):
    async def run():
        async with opened(root, folder / "profile") as page:
            await act(page)
            assert page.problems == []

    asyncio.run(run())


@pytest.fixture(scope="module")
def open_root(tmp_path_factory):
    """A server without a key, of a model with two adapters."""
    program = compiled(tmp_path_factory.mktemp("page"), "--lora-rank", "8")
    modules = [option for name in ("llama-all", "llama-patterns") for option in ("--lora-module", f"{name}={ADAPTERS / name}")]
    with serving(program, *modules, "--allowed-host", "localhost") as (_, address):
        yield address


def test_a_conversation_with_the_model(open_root, tmp_path):
    async def act(page):
        # The page without a key asks for one.
        await page.until("$('settings').open")
        await page.run(f"$('key').value = {KEY!r}; $('key').onchange()")
        await page.until("$('model').options.length === 3 && !$('model').hidden")
        assert await page.run("[...$('model').options].map((option) => option.value)") == ["tiny", "llama-all", "llama-patterns"]
        await page.run(
            "$('model').value = 'llama-all'; $('system').value = 'Be.'; $('temperature').value = 0;"
            "window.asked = []; const real = fetch; window.fetch = (path, options) => { asked.push(options.body); return real(path, options); };"
            f"({SAY})('Hi')"
        )
        await page.until("document.querySelector('.assistant small') && !running")
        (body,) = [json.loads(body) for body in await page.run("window.asked")]
        assert (body["model"], body["temperature"]) == ("llama-all", 0)
        assert body["messages"] == [{"role": "system", "content": "Be."}, {"role": "user", "content": "Hi"}]
        assert await page.run("messages.length") == 2 and await page.run("messages[1].content.length") > 5
        # An error is shown, and the message is not part of the conversation.
        await page.run(f"({SAY})('{'a' * 200}')")
        await page.until("document.querySelector('.error') && !running")
        if SCREENSHOTS:
            await page.screenshot(Path(SCREENSHOTS) / "error.png")
        assert "maximum context length" in await page.run("document.querySelector('.error').textContent")
        assert await page.run("messages.length") == 2

    on_page(open_root, tmp_path, act)


def test_answers_are_markdown_and_no_html(root, tmp_path):
    async def act(page):
        await page.run(ANSWERS)
        pieces = [MARKDOWN[at : at + 7] for at in range(0, len(MARKDOWN), 7)]
        await page.run(f"window.answers = [{json.dumps(pieces)}]; ({SAY})('What is a rushlight?')")
        await page.until("document.querySelector('.assistant small') && !running")
        names = "[...document.querySelectorAll('.assistant *')].map((element) => element.tagName.toLowerCase())"
        names = await page.run(names)
        allowed = "h2 p em strong code del a br ol ul li blockquote table thead tbody tr th td pre small"
        assert set(names) == set(allowed.split()) - {"br"}, names
        text = {name: await page.run(f"[...document.querySelectorAll('.assistant {name}')].map((e) => e.textContent)") for name in set(names)}
        assert (text["h2"], text["em"], text["del"]) == (["Rushlights"], ["rushlight"], ["wax"])
        assert text["strong"] == ["candle", "an hour"] and text["code"] == ["rush", "20 min", "<b>code</b> & *no emphasis*"]
        assert text["th"] == ["length", "time"] and text["td"] == ["30 cm", "20 min"]
        assert text["li"][1:] == ["leave one strip,", "dry it.", "Dip it."]
        links = await page.run("[...document.querySelectorAll('.assistant a')].map((a) => [a.textContent, a.href])")
        assert links == [
            ["the site", "https://example.org/a_(b)"],
            ["https://example.org/c", "https://example.org/c"],
            ["picture", "https://example.org/p.png"],
        ]
        whole = await page.run("document.querySelector('.assistant').textContent")
        for shown in ("*not* a lamp", "snake_case_name and 2 * 3 * 4", '<img src=x onerror="window.attacked = 1">', "click"):
            assert shown in whole
        assert await page.run("window.attacked === undefined")
        if SCREENSHOTS:
            await page.screenshot(Path(SCREENSHOTS) / "markdown.png")

    on_page(root, tmp_path, act)


def test_a_growing_answer_is_followed_and_stopped(root, tmp_path):
    async def act(page):
        await page.run(ANSWERS)
        lines = [f"Line {number}.\n\n" for number in range(200)]
        # The answer waits after 60, 120 and 180 lines.
        await page.run(
            "window.limit = 60; window.goes = async (count) => { while (count >= limit) await new Promise((done) => setTimeout(done, 10)); };"
            f"window.answers = [{json.dumps(lines)}, ['again']]; ({SAY})('Count.')"
        )
        has = "document.querySelectorAll('.assistant p').length >= "
        at_end = "innerHeight + scrollY >= document.documentElement.scrollHeight - 2"
        await page.until(has + "60")
        assert await page.run(at_end) and await page.run("scrollY > 0 && $('send').hidden && !$('stop').hidden")
        if SCREENSHOTS:
            await page.screenshot(Path(SCREENSHOTS) / "growing.png")
        # A reader who scrolls up is left there.
        await page.run("scrollTo(0, 100); window.limit = 120")
        await page.until(has + "120")
        assert await page.run("scrollY") == 100
        await page.run("scrollTo(0, document.documentElement.scrollHeight); new Promise(requestAnimationFrame)")
        await page.run("window.limit = 180")
        await page.until(has + "180")
        assert await page.run(at_end)
        await page.run("$('stop').click()")
        await page.until("!running")
        assert await page.run("!$('send').hidden && $('stop').hidden")
        # The part that was read stays in the conversation.
        assert (await page.run("messages[1].content")).startswith("Line 0.")
        await page.run(f"window.limit = 1000; ({SAY})('Again.')")
        await page.until("messages.length === 4")
        assert [message["role"] for message in (await page.run("asked[1].messages"))] == ["user", "assistant", "user"]

    on_page(root, tmp_path, act)
