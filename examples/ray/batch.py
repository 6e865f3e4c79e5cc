"""Answers the prompts of a data set on all machines of a Ray cluster, or on this one.

    python batch.py model.pte prompts/ answers --actors 2

Reads files of JSON lines with `id` and `prompt`, and writes Parquet files with `answer` and more beside them. Run again after it was
interrupted, it answers what is left.
"""

import argparse
import os
import socket
import time

import pyarrow.compute
import pyarrow.dataset
import ray
from ray.data.checkpoint import CheckpointConfig


class Answers:
    """An actor with a model of its own, whose weights are pages of the mapped file that actors of a machine share."""

    def __init__(self, model, threads, options):
        # Where the actor is, which may be another machine.
        from rushlight.llm import LLM

        self.llm = LLM(model, threads=threads)
        self.options = options

    def __call__(self, batch):
        answers = [self.llm.generate(str(prompt), **self.options) for prompt in batch["prompt"]]
        batch["answer"] = [answer.text for answer in answers]
        batch["tokens"] = [answer.usage.completion_tokens for answer in answers]
        batch["seconds"] = [answer.usage.seconds for answer in answers]
        batch["finish_reason"] = [answer.finish_reason for answer in answers]
        batch["answered_by"] = [f"{socket.gethostname()}:{os.getpid()}"] * len(answers)
        return batch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the .pte file, at the same path on all machines")
    parser.add_argument("prompts", help="a folder of files of JSON lines; one file is answered by one actor")
    parser.add_argument("answers", help="the folder to write, which all machines have")
    parser.add_argument("--actors", type=int, default=1, help="models in memory, on all machines together")
    parser.add_argument("--threads", type=int, default=1, help="threads of each, which is how many CPUs Ray counts for it")
    parser.add_argument("--batch", type=int, default=8, help="prompts that an actor takes at a time")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ignore-eos", action="store_true")
    arguments = parser.parse_args()
    ray.init(log_to_driver=False)
    answers = os.path.abspath(arguments.answers)
    # The prompts that are answered.
    ray.data.DataContext.get_current().checkpoint_config = CheckpointConfig(
        id_column="id", checkpoint_path=os.path.join(answers, "done"), delete_checkpoint_on_success=False
    )
    options = {
        "max_new_tokens": arguments.max_new_tokens,
        "temperature": arguments.temperature,
        "seed": arguments.seed,
        "ignore_eos": arguments.ignore_eos,
    }
    start = time.monotonic()
    prompts = os.path.abspath(arguments.prompts)
    # A block for each file. Reading and writing are little work, and must not wait for CPUs that actors have.
    ray.data.read_json(prompts, override_num_blocks=len(os.listdir(prompts)), num_cpus=0).map_batches(
        Answers,
        fn_constructor_args=(os.path.abspath(arguments.model), arguments.threads, options),
        batch_size=arguments.batch,
        compute=ray.data.ActorPoolStrategy(size=arguments.actors),
        num_cpus=arguments.threads,
    ).write_parquet(os.path.join(answers, "data"), ray_remote_args={"num_cpus": 0})
    seconds = time.monotonic() - start
    done = pyarrow.dataset.dataset(os.path.join(answers, "data")).to_table(columns=["tokens", "seconds", "answered_by"])
    tokens, busy = (pyarrow.compute.sum(done[name]).as_py() for name in ("tokens", "seconds"))
    actors = len(pyarrow.compute.unique(done["answered_by"]))
    print(f"{done.num_rows} answers, {tokens} tokens, by {actors} actors in {busy / actors:.1f} s each; the run took {seconds:.1f} s")


if __name__ == "__main__":
    main()
