"""Recognizes words in a recording, second by second, with a classifier of transformers.

    python speech_commands.py export MODEL words.pte
    python speech_commands.py run words.pte recording.wav

MODEL is a folder or a name on Hugging Face's hub of a classifier that takes a wave at 16 kHz, such as one of Wav2Vec2 that was trained on
Speech Commands. `export` needs torch and transformers; `run` needs numpy.
"""

import argparse
import json
import pathlib
import wave

import numpy
import rushlight

RATE, STEP = 16000, 8000


def export(arguments):
    import torch
    import transformers

    model = transformers.AutoModelForAudioClassification.from_pretrained(arguments.model).eval()

    class Logits(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, samples):
            return self.model(samples).logits

    program = rushlight.export(Logits(model), (torch.zeros(1, RATE),), backend="cpu")
    program.save(arguments.program)
    labels = [model.config.id2label[index] for index in range(model.config.num_labels)]
    arguments.program.with_suffix(".json").write_text(json.dumps(labels))
    print(program.report.backends)


def samples_of(path):
    """The samples of a WAV file of 16 bits at 16 kHz, from -1 to 1; the mean of its channels."""
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getsampwidth()) != (RATE, 2):
            raise SystemExit(f"{path}: expected 16 bits at {RATE} Hz, got {8 * file.getsampwidth()} bits at {file.getframerate()} Hz")
        values = numpy.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())
    return values.mean(axis=1).astype(numpy.float32) / 32768


def windows(samples):
    """(the second of its beginning, a second of sound with mean 0 and deviation 1), every half second."""
    padding = -len(samples) % STEP if len(samples) > RATE else RATE - len(samples)
    samples = numpy.pad(samples, (0, padding))
    for start in range(0, len(samples) - RATE + 1, STEP):
        window = samples[start : start + RATE]
        yield start / RATE, ((window - window.mean()) / (window.std() + 1e-7))[None]


def run(arguments):
    module = rushlight.load(arguments.program)
    labels = json.loads(arguments.program.with_suffix(".json").read_text())
    for second, window in windows(samples_of(arguments.recording)):
        logits = module(window)[0]
        print(f"{second:5.1f} s  {labels[logits.argmax()]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("export")
    make.add_argument("model")
    make.add_argument("program", type=pathlib.Path)
    make.set_defaults(function=export)
    listen = commands.add_parser("run")
    listen.add_argument("program", type=pathlib.Path)
    listen.add_argument("recording", type=pathlib.Path)
    listen.set_defaults(function=run)
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
