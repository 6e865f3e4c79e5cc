"""`rushlight.llm.LLM` beside transformers with the model of `tests/decoders/llama`."""

import asyncio
import concurrent.futures
import gc
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap
import threading

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import rushlight
import rushlight.llm

DECODER = pathlib.Path(__file__).resolve().parents[3] / "tests" / "decoders" / "llama"
EXPECTED = json.loads((DECODER / "expected.json").read_text())
TEXT = json.loads((DECODER / "text.json").read_text())
CONTEXT = 128
STEPS = len(EXPECTED["greedy"])
GREEDY = {"temperature": 0, "ignore_eos": True}
MESSAGES = [{"role": "user", "content": "Who are you"}]


def exported(folder, **options):
    """The program of the decoder, which carries its tokenizer."""
    file = folder / "llama.pte"
    rushlight.llm.export(DECODER, max_context_len=CONTEXT, **options).save(file)
    return file


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return exported(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def llm(file):
    return rushlight.llm.LLM(file)


@pytest.fixture(scope="module")
def eager():
    return transformers.AutoModelForCausalLM.from_pretrained(DECODER, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.PreTrainedTokenizerFast.from_pretrained(DECODER)


def greedy(model, tokens, steps, **options):
    """The answer of transformers."""
    prompt = torch.tensor([tokens])
    with torch.no_grad():
        options = {"max_new_tokens": steps, "do_sample": False, "pad_token_id": 0, **options}
        return model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)[0, len(tokens) :].tolist()


def test_a_prompt_is_continued_as_transformers_does(llm):
    answer = llm.generate(TEXT["prompt"], max_new_tokens=STEPS, **GREEDY)
    assert answer.tokens == EXPECTED["greedy"]
    assert answer.text == TEXT["greedy"]
    assert answer.finish_reason == "length"
    assert answer.logprobs is None
    assert answer.usage.prompt_tokens == len(EXPECTED["prompt"])
    assert answer.usage.completion_tokens == STEPS
    assert answer.usage.seconds > 0
    assert llm.generate(EXPECTED["prompt"], max_new_tokens=STEPS, **GREEDY)[:3] == answer[:3]


ADAPTERS = DECODER.parents[1] / "adapters"


def sample_of(adapter):
    sample = json.loads((ADAPTERS / adapter / "expected.json").read_text())
    return sample["prompt"], sample["greedy"]


def test_sessions_have_adapters_of_their_own():
    program = rushlight.llm.compile(DECODER, max_context_len=CONTEXT, lora_rank=8)
    llm = rushlight.llm.LLM(program.buffer)
    names = ["llama-all", "llama-patterns"]
    sessions = [llm.session(llm.adapter(ADAPTERS / name)) for name in names]
    for name, session in zip(names, sessions):
        prompt, expected = sample_of(name)
        assert session.generate(prompt, max_new_tokens=STEPS, **GREEDY).tokens == expected
        copy, logits = (torch.from_dlpack(one.logits) for one in (session.fork(), session))
        assert torch.equal(copy, logits)
    with pytest.raises(ValueError, match="another LoRA adapter"):
        sessions[0].restore(sessions[1].save())
    assert llm.generate(EXPECTED["prompt"], max_new_tokens=STEPS, **GREEDY).tokens == EXPECTED["greedy"]
    adapted = rushlight.llm.LLM(program.buffer, lora=ADAPTERS / "llama-all")
    prompt, expected = sample_of("llama-all")
    assert adapted.generate(prompt, max_new_tokens=STEPS, **GREEDY).tokens == expected
    assert adapted.session().generate(prompt, max_new_tokens=STEPS, **GREEDY).tokens == expected
    bare = adapted.session(adapter=None)
    assert bare.generate(EXPECTED["prompt"], max_new_tokens=STEPS, **GREEDY).tokens == EXPECTED["greedy"]
    assert llm.adapter(ADAPTERS / "llama-all").size > 10_000


def test_what_is_wrong_with_an_adapter_is_said(llm):
    with pytest.raises(RuntimeError, match="--lora-rank"):
        llm.adapter(ADAPTERS / "llama-all")
    small = rushlight.llm.LLM(rushlight.llm.compile(DECODER, lora_rank=2).buffer)
    with pytest.raises(rushlight.Error, match="from 1 to 2"):
        small.adapter(ADAPTERS / "llama-all")
    with pytest.raises(FileNotFoundError):
        small.adapter(ADAPTERS / "nothing")
    with pytest.raises(rushlight.Error, match="from 1 to 1024"):
        rushlight.llm.compile(DECODER, lora_rank=0)


@pytest.mark.parametrize("file", [DECODER, DECODER / "model.gguf"], ids=["folder", "gguf"])
def test_a_published_model_is_compiled_without_torch(file):
    program = rushlight.llm.compile(file, max_context_len=CONTEXT, max_seq_len=4, tokenizer=DECODER)
    answer = rushlight.llm.LLM(program.buffer).generate(TEXT["prompt"], max_new_tokens=STEPS, **GREEDY)
    assert answer.tokens == EXPECTED["greedy"] and answer.text == TEXT["greedy"]
    quantized = rushlight.llm.compile(file, quantize="int4", embeddings=4, kv_cache="f16", tokenizer=False)
    assert len(quantized.buffer) < len(program.buffer)
    with pytest.raises(rushlight.Error, match="from 1 to 128"):
        rushlight.llm.compile(file, max_context_len=1000)


def test_an_answer_ends_where_the_model_ends_it(llm, eager):
    expected = greedy(eager, EXPECTED["prompt"], STEPS, eos_token_id=2)
    assert expected[-1] == 2 and len(expected) < STEPS
    answer = llm.generate(TEXT["prompt"], temperature=0)
    assert answer.tokens == expected[:-1]
    assert answer.finish_reason == "stop"


def test_prompts_of_a_list_are_answered_each(llm, eager, tokenizer):
    prompts = ["Hello", [5, 6, 7]]
    answers = llm.generate(prompts, max_new_tokens=8, **GREEDY)
    ids = [tokenizer.encode("Hello"), [5, 6, 7]]
    assert [answer.tokens for answer in answers] == [
        greedy(eager, tokens, 8, eos_token_id=None) for tokens in ids
    ]


def test_pieces_of_a_stream_join_to_the_text(llm):
    stream = llm.generate(TEXT["prompt"], max_new_tokens=STEPS, stream=True, **GREEDY)
    pieces = list(stream)
    assert len(pieces) > STEPS // 2
    assert "".join(pieces) == TEXT["greedy"]
    assert stream.completion.tokens == EXPECTED["greedy"]
    assert stream.completion.finish_reason == "length"
    assert next(stream, None) is None


def test_a_stop_string_ends_the_answer(llm):
    text = TEXT["greedy"]
    for stop in ("Yn", ["nothing", "Yn"]):
        stream = llm.generate(TEXT["prompt"], stop=stop, stream=True, **GREEDY)
        assert "".join(stream) == text[: text.index("Yn")]
        assert stream.completion.finish_reason == "stop"


def test_penalties_and_bias_are_those_of_transformers(llm, eager):
    penalized = greedy(eager, EXPECTED["prompt"], 24, eos_token_id=None, repetition_penalty=1.3)
    answer = llm.generate(EXPECTED["prompt"], max_new_tokens=24, repetition_penalty=1.3, **GREEDY)
    assert answer.tokens == penalized
    biased = greedy(eager, EXPECTED["prompt"], 8, eos_token_id=None, sequence_bias={(17,): -10.0})
    answer = llm.generate(EXPECTED["prompt"], max_new_tokens=8, logit_bias={17: -10.0}, **GREEDY)
    assert answer.tokens == biased


def test_log_probabilities_are_those_of_transformers(llm, eager):
    answer = llm.generate(EXPECTED["prompt"], max_new_tokens=16, logprobs=3, seed=5, temperature=1.0, ignore_eos=True)
    with torch.no_grad():
        tokens = torch.tensor([EXPECTED["prompt"] + answer.tokens])
        rows = torch.log_softmax(eager(tokens).logits[0, len(EXPECTED["prompt"]) - 1 : -1].double(), -1)
    assert len(answer.logprobs) == 16
    for row, score, token in zip(rows, answer.logprobs, answer.tokens):
        assert score.token == token
        assert score.logprob == pytest.approx(row[token].item(), abs=1e-3)
        values, indices = row.topk(3)
        assert list(score.top) == indices.tolist()
        assert list(score.top.values()) == pytest.approx(values.tolist(), abs=1e-3)
    alone = llm.generate(EXPECTED["prompt"], max_new_tokens=2, logprobs=True, **GREEDY)
    assert [score.top for score in alone.logprobs] == [{}, {}]


def test_a_seed_decides_what_is_sampled(llm):
    def sampled(**options):
        return llm.generate(TEXT["prompt"], max_new_tokens=24, temperature=2.0, ignore_eos=True, **options).tokens

    assert sampled() == sampled(seed=0)
    assert sampled(seed=1) != sampled(seed=2)
    assert sampled(seed=None) != sampled(seed=None)


def test_the_tokenizer_is_that_of_transformers(llm, tokenizer):
    ours = rushlight.llm.Tokenizer.load(DECODER)
    for text in ("Hello you", "", "a</s>b"):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ours.encode(text, add_special_tokens=False) == ids
        assert ours.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True)
        assert ours.decode(ids, skip_special_tokens=False) == tokenizer.decode(ids, skip_special_tokens=False)
    assert ours.encode("Hello") == tokenizer.encode("Hello")
    assert len(ours) == ours.vocab_size == len(tokenizer)
    assert (ours.bos_id, ours.eos_ids) == (tokenizer.bos_token_id, [tokenizer.eos_token_id])
    assert ours.id_to_token(5) == tokenizer.convert_ids_to_tokens(5)
    assert ours.token_to_id("</s>") == 2
    assert ours.token_to_id("none such") is None and ours.id_to_token(5000) is None
    assert llm.tokenizer.vocab_size == llm.vocab_size


def test_messages_are_put_into_the_template(llm, eager, tokenizer):
    text = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert llm.tokenizer.apply_chat_template(MESSAGES, tokenize=False) == text
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert llm.tokenizer.apply_chat_template(MESSAGES) == ids
    answer = llm.chat(MESSAGES, max_new_tokens=16, **GREEDY)
    assert answer.tokens == greedy(eager, ids, 16, eos_token_id=None)
    assert "".join(llm.chat(MESSAGES, max_new_tokens=16, stream=True, **GREEDY)) == answer.text


def test_a_template_reads_tools_and_variables(tmp_path):
    shutil.copy(DECODER / "tokenizer.json", tmp_path)
    template = "{{ bos_token }}{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{{ mood }}{{ messages[0].content }}"
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = rushlight.llm.Tokenizer.load(tmp_path)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"b": 1, "a": [True, None, "é"]}}}]
    for options in ({}, {"tools": tools}, {"mood": "calm"}):
        assert ours.apply_chat_template(MESSAGES, tokenize=False, **options) == theirs.apply_chat_template(
            MESSAGES, tokenize=False, **options
        )


def test_a_session_goes_on(llm, eager):
    prompt, answer = EXPECTED["prompt"], EXPECTED["greedy"]
    session = llm.session()
    session.prefill(prompt)
    assert session.tokens == prompt
    assert torch.tensor(session.logits.tolist()) == pytest.approx(torch.tensor(EXPECTED["logits"]), abs=1e-4)
    fork, saved, logits = session.fork(), session.save(), session.logits.tolist()
    assert session.generate("", max_new_tokens=8, **GREEDY).tokens == answer[:8]
    # The last token was not read.
    assert session.tokens == prompt + answer[:7]
    assert session.generate(answer[7:8], max_new_tokens=4, **GREEDY).tokens == answer[8:12]
    assert fork.position == len(prompt)
    assert fork.generate("", max_new_tokens=8, **GREEDY).tokens == answer[:8]
    session.rewind(3)
    session.prefill(prompt[3:])
    assert session.generate("", max_new_tokens=8, **GREEDY).tokens == answer[:8]
    other = llm.session()
    other.restore(saved)
    assert (other.tokens, other.logits.tolist()) == (prompt, logits)
    assert other.generate("", max_new_tokens=8, **GREEDY).tokens == answer[:8]
    other.reset()
    assert (other.position, other.tokens, other.logits.tolist()) == (0, [], [])
    tokens = greedy(eager, [7, 8], 4, eos_token_id=None)
    assert other.generate([7, 8], max_new_tokens=4, **GREEDY).tokens == tokens


def test_a_conversation_computes_new_messages_alone(llm, eager):
    session = llm.session()
    first = session.chat(MESSAGES, max_new_tokens=6, **GREEDY)
    messages = [*MESSAGES, {"role": "assistant", "content": first.text}, {"role": "user", "content": "Why"}]
    before, ids = session.tokens, llm.tokenizer.apply_chat_template(messages)
    known = next(at for at, (a, b) in enumerate(zip(before, ids)) if a != b)
    assert known >= len(llm.tokenizer.apply_chat_template(MESSAGES))
    second = session.chat(messages, max_new_tokens=6, **GREEDY)
    assert second.tokens == greedy(eager, ids, 6, eos_token_id=None)
    assert second.usage.prompt_tokens == len(ids) - known
    assert session.keep_common_prefix(ids[:10] + [0]) == 10


def test_answers_of_one_model_take_turns(llm):
    expected = llm.generate(TEXT["prompt"], max_new_tokens=STEPS, **GREEDY)
    streams = [llm.generate(TEXT["prompt"], max_new_tokens=STEPS, stream=True, **GREEDY) for _ in range(3)]
    texts = [""] * 3
    for pieces in zip(*streams):
        texts = [text + piece for text, piece in zip(texts, pieces)]
    assert texts == [expected.text] * 3


def test_threads_take_turns(llm):
    order, answers, barrier = [], {}, threading.Barrier(3)

    def work(number):
        barrier.wait()
        stream = llm.generate(TEXT["prompt"], max_new_tokens=STEPS, stream=True, **GREEDY)
        for _ in stream:
            order.append(number)
        answers[number] = stream.completion.tokens

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == {number: EXPECTED["greedy"] for number in range(3)}
    # Each has its turn before another has many.
    third = order.index(2), order.index(1), order.index(0)
    assert max(third) < 3 * STEPS // 2
    assert sum(a != b for a, b in zip(order, order[1:])) > STEPS


def test_an_event_loop_is_not_blocked(llm):
    async def main():
        pieces, ticks, is_over = [], 0, False

        async def tick():
            nonlocal ticks
            while not is_over:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        async for piece in llm.agenerate(TEXT["prompt"], max_new_tokens=STEPS, **GREEDY):
            pieces.append(piece)
        whole = await llm.agenerate(TEXT["prompt"], max_new_tokens=STEPS, **GREEDY)
        several = await asyncio.gather(*(llm.achat(MESSAGES, max_new_tokens=4, **GREEDY) for _ in range(4)))
        is_over = True
        await ticking
        return "".join(pieces), whole, several, ticks

    text, whole, several, ticks = asyncio.run(main())
    assert text == whole.text == TEXT["greedy"]
    assert {answer.text for answer in several} == {llm.chat(MESSAGES, max_new_tokens=4, **GREEDY).text}
    assert ticks > STEPS


def test_an_answer_can_be_ended(llm):
    def stream():
        return llm.generate(TEXT["prompt"], stream=True, **GREEDY)

    with stream() as answer:
        first = next(answer)
    assert next(answer, None) is None
    assert answer.completion.text == first
    assert answer.completion.finish_reason == "cancelled"
    abandoned = stream()
    next(abandoned)
    del abandoned
    gc.collect()

    async def cancelled():
        answer = llm.agenerate(TEXT["prompt"], **GREEDY)

        async def listen():
            async for _ in answer:
                reached.set()

        reached = asyncio.Event()
        task = asyncio.create_task(listen())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await answer.aclose()
        return answer.completion

    answer = asyncio.run(cancelled())
    assert answer.finish_reason == "cancelled" and TEXT["greedy"].startswith(answer.text)
    assert llm.generate(TEXT["prompt"], max_new_tokens=8, **GREEDY).tokens == EXPECTED["greedy"][:8]


def run(script):
    """What a script in a process of its own prints."""
    # Programs that a shell starts in the background ignore interrupts, and so do theirs.
    heed = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", heed + textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_interrupt_ends_an_answer(file):
    printed = run(f"""
        import os, signal, threading
        import rushlight.llm

        llm = rushlight.llm.LLM({str(file)!r})
        pieces = []
        try:
            for piece in llm.generate("Hello", temperature=0, ignore_eos=True, stream=True):
                pieces.append(piece)
                if len(pieces) == 3:
                    os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            print(len(pieces), llm.generate("Hello", max_new_tokens=3, temperature=0).finish_reason)
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                llm.generate("Hello", temperature=0, ignore_eos=True)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    assert printed == "3 length\ninterrupted\n"


def test_an_interrupt_ends_lowering(tmp_path):
    file = exported(tmp_path, backend="portable")
    printed = run(f"""
        import signal, threading, time
        import rushlight.llm

        ended = 0
        for attempt in range(20):
            timer = threading.Timer(0.001 * (1 + attempt), signal.raise_signal, [signal.SIGINT])
            loaded = False
            try:
                timer.start()
                rushlight.llm.LLM({str(file)!r}, lower="cpu")
                loaded = True
                timer.join()
                # The handler has run before this ends.
                time.sleep(1)
            except KeyboardInterrupt:
                ended += not loaded
            timer.join()
        llm = rushlight.llm.LLM({str(file)!r}, lower="cpu")
        print(ended > 0, *llm.generate({TEXT["prompt"]!r}, max_new_tokens=8, temperature=0, ignore_eos=True).tokens)
    """)
    assert printed.split() == ["True", *map(str, EXPECTED["greedy"][:8])]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_goes_on_with_the_answers_of_its_parent(file):
    printed = run(f"""
        import os
        import rushlight.llm

        llm = rushlight.llm.LLM({str(file)!r})
        stream = llm.generate({TEXT["prompt"]!r}, max_new_tokens=12, temperature=0, stream=True)
        begun = next(stream)
        child = os.fork()
        text = begun + "".join(stream)
        # One after the other, as both print to one pipe.
        if child:
            assert os.waitpid(child, 0)[1] == 0
        print(text, flush=True)
    """)
    assert printed == 2 * f"{TEXT['greedy'][:12]}\n"


def test_an_answer_whose_session_went_on_is_over(llm):
    session = llm.session()
    stream = session.generate(TEXT["prompt"], stream=True, **GREEDY)
    next(stream)
    session.reset()
    with pytest.raises(RuntimeError, match="used for something else"):
        next(stream)
    assert next(stream, None) is None


def test_a_program_with_its_cache_in_planned_memory_has_one_session(tmp_path):
    file = tmp_path / "portable.pte"
    rushlight.llm.export(DECODER, max_context_len=32, backend="portable").save(file)
    llm = rushlight.llm.LLM(file, DECODER, lower="off")
    answer = llm.generate(TEXT["prompt"], max_new_tokens=8, **GREEDY)
    assert answer.tokens == EXPECTED["greedy"][:8]
    session = llm.session()
    assert session.generate(TEXT["prompt"], max_new_tokens=8, **GREEDY).tokens == answer.tokens
    with pytest.raises(RuntimeError, match="one session at a time"):
        llm.session()
    with pytest.raises(RuntimeError, match="cannot be saved"):
        session.save()
    del session
    assert llm.generate(TEXT["prompt"], max_new_tokens=8, **GREEDY).tokens == answer.tokens


def test_what_cannot_be_done_is_refused(llm, file, tmp_path):
    for options, problem in (
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -1}, "top_k must be 0 or more, got -1"),
        ({"min_p": 2}, "min_p"),
        ({"typical_p": float("nan")}, "typical_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"max_new_tokens": -1}, "max_new_tokens must be 0 or more, got -1"),
        ({"logprobs": -1}, "logprobs must be true, false, or 0 or more, got -1"),
        ({"seed": -1}, "seed must be from 0 to 18446744073709551615, got -1"),
        ({"logit_bias": {-1: 1.0}}, "no token -1"),
    ):
        for answer in (llm.generate, llm.agenerate):
            with pytest.raises(ValueError, match=problem):
                answer("Hello", **options)
    with pytest.raises(TypeError, match="unexpected keyword argument 'tempreture': did you mean 'temperature'"):
        llm.generate("Hello", tempreture=0)
    with pytest.raises(TypeError, match="stop must be a text or a list of texts, got 3"):
        llm.generate("Hello", stop=3)
    with pytest.raises(TypeError, match="one prompt"):
        llm.generate(["Hello"], stream=True)
    for prompt, problem in (("", "empty"), ([64], "no token 64"), ([-1], "no token -1"), ([5] * (CONTEXT + 1), "at most 128 more tokens")):
        with pytest.raises(ValueError, match=problem):
            llm.generate(prompt)
        with pytest.raises(ValueError, match=problem):
            llm.generate(prompt, stream=True)
    with pytest.raises(ValueError, match="no character|no token|cannot"):
        llm.generate("\N{SNOWMAN}")
    with pytest.raises(TypeError, match="JSON"):
        llm.chat([{"role": "user", "content": object()}])
    with pytest.raises(ValueError, match=r"(?s)position 5.*expected +at most 0"):
        llm.session().rewind(5)
    with pytest.raises(ValueError, match="no saved session"):
        llm.session().restore(b"what is this")
    # Files.
    with pytest.raises(FileNotFoundError, match="none.json"):
        rushlight.llm.Tokenizer.load(tmp_path / "none.json")
    with pytest.raises(ValueError, match="unknown kind"):
        rushlight.llm.Tokenizer.load(DECODER / "model.safetensors")
    with pytest.raises(rushlight.Error, match="none.pte"):
        rushlight.llm.LLM(tmp_path / "none.pte")
    with pytest.raises(ValueError, match="no language model"):
        rushlight.llm.LLM(DECODER.parents[2] / "examples" / "cortex-m" / "digits.pte", DECODER)
    shutil.copy(DECODER / "tokenizer.json", tmp_path)
    with pytest.raises(ValueError, match="no chat template"):
        rushlight.llm.LLM(file.read_bytes(), tmp_path / "tokenizer.json").chat(MESSAGES)


def test_the_tokenizer_is_in_the_program(file, llm, tmp_path):
    # Nothing is beside it.
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert rushlight.llm.Tokenizer.beside(file) is None
    expected = rushlight.llm.Tokenizer.load(DECODER)
    texts = (llm.tokenizer.apply_chat_template(MESSAGES, tokenize=False), TEXT["prompt"])
    for found in (rushlight.llm.Tokenizer.load(file), rushlight.llm.LLM(file.read_bytes()).tokenizer):
        assert found.apply_chat_template(MESSAGES, tokenize=False) == texts[0]
        assert found.encode(texts[1]) == expected.encode(texts[1]) == EXPECTED["prompt"]
        assert (found.bos_id, found.eos_ids) == (expected.bos_id, expected.eos_ids)
    # Without it, the one beside the program, or one that is named.
    lonely = exported(tmp_path, tokenizer=False)
    for source, message in ((lonely, "carries no tokenizer, and none is beside it"), (lonely.read_bytes(), "carries no")):
        with pytest.raises(ValueError, match=message):
            rushlight.llm.LLM(source)
    with pytest.raises(ValueError, match="llama.pte` carries no tokenizer"):
        rushlight.llm.Tokenizer.load(lonely)
    assert rushlight.llm.LLM(lonely, file).tokenizer.encode("Hello") == expected.encode("Hello")
    shutil.copy(DECODER / "tokenizer.json", tmp_path)
    beside = rushlight.llm.LLM(lonely)
    assert beside.tokenizer.encode("Hello") == expected.encode("Hello")
    with pytest.raises(ValueError, match="no chat template"):
        beside.chat(MESSAGES)
    # Inside comes before beside.
    shutil.copy(file, tmp_path / "inside.pte")
    assert rushlight.llm.LLM(tmp_path / "inside.pte").chat(MESSAGES, max_new_tokens=1).text
    # One that is named at the export, of a model in memory.
    model = transformers.AutoModelForCausalLM.from_pretrained(DECODER, dtype=torch.float32)
    program = rushlight.llm.export(model, max_context_len=CONTEXT, tokenizer=DECODER / "tokenizer.json")
    assert rushlight.llm.LLM(program.buffer).chat(MESSAGES, max_new_tokens=1).text
    with pytest.raises(FileNotFoundError, match="none"):
        rushlight.llm.export(DECODER, tokenizer=tmp_path / "none")


def test_a_damaged_tokenizer_inside_is_an_error(file, tmp_path):
    whole = file.read_bytes()
    name = (DECODER / "tokenizer.json").read_bytes()
    assert whole.count(name) == 1
    for part in (b" " * len(name), name[: len(name) // 2] + b" " * (len(name) - len(name) // 2)):
        with pytest.raises(ValueError, match="`tokenizer.json` inside of the program"):
            rushlight.llm.LLM(whole.replace(name, part))


def test_an_answer_has_its_form(llm):
    class Model:
        @staticmethod
        def model_json_schema():
            return {"type": "boolean"}

    sampled = {"max_new_tokens": 40, "temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    for seed in range(3):
        for schema in ({"type": "boolean"}, '{"enum": [true, false]}', Model, Model()):
            answer = llm.generate("Is it", json_schema=schema, seed=seed, **sampled)
            assert answer.text in ("true", "false") and answer.finish_reason == "stop"
        assert re.fullmatch("[a-c]{4}x?", llm.generate("Is it", regex="[a-c]{4}x?", seed=seed, **sampled).text)
        for grammar in ('start: "yes" | "no"', 'root ::= "yes" | "no"'):
            answers = [
                llm.generate("Is it", grammar=grammar, seed=seed, **sampled),
                llm.chat(MESSAGES, grammar=grammar, seed=seed, **sampled),
                asyncio.run(_awaited(llm.agenerate("Is it", grammar=grammar, seed=seed, **sampled))),
            ]
            assert {answer.text for answer in answers} <= {"yes", "no"}
    for options, problem in (
        ({"json_schema": {"type": "nonsense"}}, "nonsense"),
        ({"json_schema": "{"}, "json_schema must be JSON, got EOF"),
        ({"regex": "("}, "grammar"),
        ({"grammar": "root ::= a"}, "line 1, column 10: there is no rule `a`"),
        ({"regex": "a", "grammar": "start: /a/"}, "one of json_schema, regex and grammar"),
        # The tokenizer has letters alone.
        ({"json_schema": {"type": "integer"}}, "none of the model's tokens"),
    ):
        with pytest.raises(ValueError, match=problem):
            llm.generate("Hello", **options)


async def _awaited(answer):
    return await answer


@pytest.fixture(scope="module")
def verifier(tmp_path_factory):
    """A program that can verify drafts."""
    return exported(tmp_path_factory.mktemp("verifier"), full_logits=True)


def test_guessed_tokens_change_nothing(verifier, llm, tmp_path):
    target, draft = rushlight.llm.LLM(verifier, threads=1), rushlight.llm.LLM(verifier, threads=1)
    for options in ({"temperature": 0}, {"seed": 5, "temperature": 0.2}):
        options |= {"max_new_tokens": 60, "ignore_eos": True}
        plain = target.generate("abcabcabcabc", **options)
        assert plain.usage.drafted_tokens == 0
        for speculate in ("lookup", draft):
            # The clock decides how long drafts are: a pause of this process may end them for an answer.
            for _ in range(10):
                guessed = target.generate("abcabcabcabc", speculate=speculate, draft_max=4, **options)
                assert (guessed.text, guessed.tokens) == (plain.text, plain.tokens)
                if guessed.usage.accepted_tokens:
                    break
            assert guessed.usage.drafted_tokens >= guessed.usage.accepted_tokens > 0
    assert target.chat(MESSAGES, speculate=draft, **GREEDY).text == target.chat(MESSAGES, **GREEDY).text
    # Two models that guess for each other, from several threads.
    expected = target.generate("abcabcabc", max_new_tokens=30, **GREEDY).text
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        pairs = [(target, draft), (draft, target)] * 4
        answers = [
            threads.submit(one.generate, "abcabcabc", speculate=other, max_new_tokens=30, **GREEDY) for one, other in pairs
        ]
        for answer in answers:
            try:
                assert answer.result().text == expected
            except RuntimeError as error:
                # Each waits for the other.
                assert "the model is in use" in str(error)
    with pytest.warns(RuntimeWarning, match="tokens are not guessed: the program returns the logits of the last token"):
        assert llm.generate("abc", speculate="lookup", max_new_tokens=5, **GREEDY).usage.drafted_tokens == 0
    for options, problem in (
        ({"speculate": "magic"}, '"lookup" or an LLM, got "magic"'),
        ({"speculate": target}, "cannot guess for itself"),
        ({"speculate": "lookup", "draft_max": 0}, "draft_max must be 1 or more, got 0"),
    ):
        with pytest.raises(ValueError, match=problem):
            target.generate("abc", **options)
    with pytest.raises(TypeError, match="speculate"):
        target.generate("abc", speculate=3)
    # As many tokens do not make a tokenizer of the same family.
    vocabulary = json.loads((DECODER / "tokenizer.json").read_text())
    known = vocabulary["model"]["vocab"]
    vocabulary["model"]["vocab"] = {token: 4 + (id - 3) % 60 if id >= 4 else id for token, id in known.items()}
    (tmp_path / "tokenizer.json").write_text(json.dumps(vocabulary))
    other = rushlight.llm.LLM(verifier, tmp_path, threads=1)
    with pytest.raises(ValueError, match="another tokenizer"):
        target.generate("abc", speculate=other)


def test_samplers_are_those_of_the_command_line(llm):
    options = {"seed": 1, "max_new_tokens": 30, "ignore_eos": True}
    plain = llm.generate("abcabcabc", **options).text
    for chosen in (
        {"dry_multiplier": 9, "dry_base": 2, "dry_allowed_length": 1, "dry_penalty_last_n": 40},
        {"dry_multiplier": 9, "dry_allowed_length": 1, "dry_sequence_breaker": "none"},
        {"dry_multiplier": 9, "dry_allowed_length": 1, "dry_sequence_breaker": ["a", "b"]},
        {"mirostat": 2, "mirostat_tau": 1.5, "mirostat_eta": 0.2},
        {"executorch_sampler": True},
    ):
        answer = llm.generate("abcabcabc", **chosen, **options).text
        assert answer == llm.generate("abcabcabc", **chosen, **options).text != plain, chosen
    for chosen, problem in (
        ({"dry_multiplier": 1, "dry_base": 0}, "dry_base"),
        ({"dry_allowed_length": -1}, "dry_allowed_length must be 1 or more, got -1"),
        ({"mirostat": 1}, "mirostat must be 0 or 2, got 1"),
        ({"mirostat": 2, "mirostat_tau": -1}, "mirostat_tau"),
        ({"executorch_sampler": True}, "seed"),
    ):
        with pytest.raises(ValueError, match=problem):
            llm.generate("Hello", **chosen)


def test_threads_do_not_mix_the_prompts_of_a_session(llm):
    session = llm.session()
    questions = [[{"role": "user", "content": text}] for text in ("Who are you", "What is it", "Why", "When was that")]
    expected = [llm.chat(question, max_new_tokens=8, **GREEDY).text for question in questions]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        ask = lambda question: session.chat(question, max_new_tokens=8, **GREEDY).text
        for _ in range(5):
            assert list(threads.map(ask, questions)) == expected

    async def all_at_once():
        asked = (session.achat(question, max_new_tokens=8, **GREEDY) for question in questions)
        return await asyncio.gather(*(_awaited(answer) for answer in asked))

    assert [answer.text for answer in asyncio.run(all_at_once())] == expected


def test_an_interrupt_ends_a_prompt(tmp_path):
    shutil.copytree(DECODER, tmp_path, dirs_exist_ok=True)
    config = json.loads((DECODER / "config.json").read_text()) | {"max_position_embeddings": 60_000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    rushlight.llm.export(tmp_path, max_context_len=60_000, max_seq_len=512).save(tmp_path / "llama.pte")
    printed = run(f"""
        import os, signal, threading, time
        import rushlight.llm

        llm = rushlight.llm.LLM({str(tmp_path / "llama.pte")!r}, threads=1)
        session = llm.session()
        for read in (lambda prompt: llm.generate(prompt), session.generate, session.prefill):
            pressed = []
            def press():
                pressed.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)
            threading.Timer(0.3, press).start()
            try:
                read([5] * 50_000)
            except KeyboardInterrupt:
                print(time.monotonic() - pressed[0])
        position = session.position
        begin = time.monotonic()
        session.prefill([5] * 128)
        print(time.monotonic() - begin, position)
        session.reset()
        print(llm.generate("Hello", max_new_tokens=3, temperature=0).finish_reason)
    """)
    *seconds, part, position, reason = printed.split()
    assert len(seconds) == 3 and 0 < int(position) < 50_000 and int(position) % 128 == 0 and reason == "length"
    # Within 0.2 s, or what a part of the prompt takes.
    assert all(float(time) < 0.2 + 2 * float(part) for time in seconds), (seconds, part)


def test_signatures_show_the_options():
    """`help` and completion list them with their defaults."""
    for owner in (rushlight.llm.LLM, rushlight.llm.Session):
        for name in ("generate", "chat", "agenerate", "achat"):
            method = getattr(owner, name)
            parameters = inspect.signature(method).parameters
            assert method.__doc__ and "options" not in parameters, (owner, name)
            shown = {name: parameter.default for name, parameter in parameters.items() if parameter.kind == parameter.KEYWORD_ONLY}
            expected = {"max_new_tokens": None, "temperature": 0.8, "top_k": 40, "seed": 0, "ignore_eos": False}
            assert shown.items() >= expected.items(), (owner, name)
