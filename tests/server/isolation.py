"""Whether one key's client can tell what another's has asked, by the time of an answer and by its counts.

    RUSHLIGHT=target/checked/rushlight .venv/bin/python tests/server/isolation.py --trials 1000

In each trial the client of one key asks a prompt, and that of another guesses it, rightly in every second trial. Prints how the times of
right and wrong guesses differ, in standard errors of their difference; and the same for a second client of the first key, who shares
what was read, so that one sees that the measurement would find it. Fails if counts differ, or times by more than `--errors` standard
errors. The machine is to do nothing else.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
import urllib.request

from misbehave import OTHER_KEY, long_model
from rushlight_server import KEY, serving

KNOWN = 32


def ask(address, key, tokens):
    body = json.dumps({"prompt": tokens, "max_tokens": 0}).encode()
    question = urllib.request.Request(address + "/v1/completions", body, {"Authorization": f"Bearer {key}"})
    start = time.perf_counter()
    with urllib.request.urlopen(question) as answer:
        text = answer.read()
    return time.perf_counter() - start, json.loads(text)["usage"]["prompt_tokens_details"]["cached_tokens"]


def trials(address, guesser, count, secret, choose):
    """Times of right and of wrong guesses, and the counts of each."""
    times, counts = ([], []), (set(), set())
    for trial in range(count):
        # Another beginning each time, so that a guesser's own prompts are of no use.
        prompt = [choose.randrange(3, 60) for _ in range(KNOWN + secret)]
        wrong = prompt[:KNOWN] + [choose.randrange(3, 60) for _ in range(secret)]
        ask(address, KEY, prompt)
        seconds, cached = ask(address, guesser, wrong if trial % 2 else prompt)
        times[trial % 2].append(seconds)
        # A guesser's own prompts have a token or two in common by chance.
        counts[trial % 2].add("nothing" if cached <= 8 else "the beginning" if cached <= KNOWN + 8 else "all")
    return times, counts


def standard_errors(right, wrong):
    """How far apart the means are; of the faster nine tenths, as a machine has pauses."""
    right, wrong = (sorted(times)[: int(0.9 * len(times))] for times in (right, wrong))
    error = (statistics.variance(right) / len(right) + statistics.variance(wrong) / len(wrong)) ** 0.5
    return (statistics.mean(right) - statistics.mean(wrong)) / error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--secret", type=int, default=512, help="tokens that are guessed")
    parser.add_argument("--errors", type=float, default=4.0)
    arguments = parser.parse_args()
    choose = random.Random(7)
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        with serving(long_model(folder), "--api-key", OTHER_KEY) as (_, address):
            for name, guesser in (("another key", OTHER_KEY), ("the same key", KEY)):
                (right, wrong), counts = trials(address, guesser, arguments.trials, arguments.secret, choose)
                errors = standard_errors(right, wrong)
                print(
                    f"{name}: a right guess takes {1e3 * statistics.median(right):.3f} ms, a wrong one "
                    f"{1e3 * statistics.median(wrong):.3f} (medians), {errors:+.1f} standard errors apart; "
                    f"known of a right one {counts[0]}, of a wrong one {counts[1]}",
                    flush=True,
                )
                is_told = abs(errors) > arguments.errors or counts != ({"nothing"}, {"nothing"})
                if is_told != (guesser == KEY):
                    problems.append(f"{name}: guesses {'can' if is_told else 'cannot'} be told")
    for problem in problems:
        print("FAILED:", problem)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
