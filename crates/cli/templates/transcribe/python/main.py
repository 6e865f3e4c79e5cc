"""Transcribes recordings: `python main.py samples/dialed.wav`."""

import pathlib
import sys
import wave

import numpy
import rushlight

HERE = pathlib.Path(__file__).parent
RATE = {{rate}}
"""Samples a second that the model expects."""


def read(path):
    """Returns the samples of a WAV file of 16 bits from -1 to 1, the mean of its channels."""
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getsampwidth()) != (RATE, 2):
            raise SystemExit(f"{path}: expected 16 bits at {RATE} Hz, got {8 * file.getsampwidth()} bits at {file.getframerate()} Hz")
        values = numpy.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())
    return values.mean(axis=1).astype(numpy.float32) / 32768


def text_of(logits, tokens):
    """Decodes CTC greedily: repeated tokens count once, and token 0, the blank, is removed."""
    best = logits.argmax(axis=-1)
    changes = numpy.append(True, best[1:] != best[:-1])
    return "".join(tokens[index] for index in best[changes & (best != 0)]).replace("|", " ")


def main():
    if len(sys.argv) < 2:
        raise SystemExit("usage: python main.py RECORDING.wav...")
    module = rushlight.load(HERE / "model.pte")
    tokens = (HERE / "labels.txt").read_text().splitlines()
    for path in sys.argv[1:]:
        logits = numpy.asarray(module(read(path)[None]))
        print(f"{path}: {text_of(logits[0], tokens)}")


if __name__ == "__main__":
    main()
