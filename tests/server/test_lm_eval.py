"""lm-eval measures the perplexity of a text by `rushlight llm serve`: it is that of `rushlight llm perplexity`."""

import json
import math
import os
import random
import subprocess

import pytest
from rushlight_server import GREEDY, KEY, MODEL, RUSHLIGHT

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

WINDOW = 60


def text():
    """Words of the model's letters, of several windows."""
    choose = random.Random(7)
    letters = [letter for letter in GREEDY["prompt"] + GREEDY["greedy"] if letter.isalnum()]
    return " ".join("".join(choose.choices(letters, k=choose.randint(2, 7))) for _ in range(60))


def test_perplexity_is_that_of_the_command(program, address, tmp_path, monkeypatch):
    import datasets
    import lm_eval
    from lm_eval.api.registry import get_model
    from lm_eval.api.task import ConfigurableTask

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    document = text()
    (tmp_path / "text.txt").write_text(document)
    command = [RUSHLIGHT, "llm", "perplexity", program, tmp_path / "text.txt", "--window", str(WINDOW), "--json"]
    expected = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert expected["tokens"] > 2 * WINDOW

    task = ConfigurableTask(
        config={
            "task": "a_text",
            "custom_dataset": lambda **_: {"test": datasets.Dataset.from_list([{"text": document}])},
            "test_split": "test",
            "output_type": "loglikelihood_rolling",
            "doc_to_text": "",
            "doc_to_target": "{{text}}",
            "metric_list": [{"metric": "bits_per_byte"}],
        }
    )
    for batch_size, concurrent in ((3, 1), (1, 4)):
        model = get_model("local-completions")(
            model="tiny",
            base_url=address + "/completions",
            tokenizer=str(MODEL),
            tokenizer_backend="huggingface",
            # It leaves room for the first token, and for one that it has generated.
            max_length=WINDOW + 2,
            num_concurrent=concurrent,
            batch_size=batch_size,
        )
        # `simple_evaluate` describes the machine besides, by many commands.
        found = lm_eval.evaluate(lm=model, task_dict={"a_text": task}, bootstrap_iters=0)["results"]["a_text"]
        bits = found["bits_per_byte,none"]
        perplexity = math.exp(bits * math.log(2) * expected["bytes"] / expected["tokens"])
        assert bits == pytest.approx(expected["bits_per_byte"], rel=5e-6)
        assert f"{perplexity:.4f}" == f"{expected['perplexity']:.4f}", (batch_size, concurrent)
