"""A synthesiser, to several files of sound at once: each name's ending decides on the codec.

    python examples/synthesiser.py tune.wav tune.m4a tune.opus

NumPy computes the notes block by block, and `Encoder.write_audio` takes each block's samples.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from penstock._ffmpeg.encoder import AudioEncoder
from penstock.video import AudioTrack

SAMPLE_RATE = 48_000
BLOCK_S = 0.1
NOTE_S = 0.25
# As MIDI numbers them: 69 has 440 Hz, and one more is a semitone.
TUNE = (57, 64, 69, 72, 76, 72, 69, 64, 55, 62, 67, 71, 74, 71, 67, 62)


def tune(times_s: np.ndarray) -> np.ndarray:
    """The samples of left and right at these times, samples × 2 of float32."""
    samples = np.zeros((len(times_s), 2))
    for number, pitch in enumerate(TUNE):
        since_s = np.maximum(times_s - number * NOTE_S, 0)
        frequency = 440 * 2 ** ((pitch - 69) / 12)
        # A plucked string: higher partials are softer, and fade sooner.
        for partial in range(1, 6):
            fading = np.exp(-3 * partial * since_s) * np.minimum(since_s / 0.005, 1)
            tone = 0.2 / partial * fading * np.sin(2 * np.pi * partial * frequency * since_s)
            side = 0.5 + 0.3 * np.sin(number)
            samples += tone[:, np.newaxis] * (side, 1 - side)
    return samples.astype(np.float32)


def main() -> None:
    options = parse_options()
    block = np.arange(round(BLOCK_S * SAMPLE_RATE))
    sound = AudioTrack(SAMPLE_RATE, channels=2)
    with ExitStack() as stack:
        encoders = [stack.enter_context(AudioEncoder(output, sound)) for output in options.outputs]
        for start in range(0, round(options.seconds * SAMPLE_RATE), len(block)):
            samples = tune((start + block) / SAMPLE_RATE)
            for encoder in encoders:
                encoder.write(samples)
    for encoder in encoders:
        print(encoder.report)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Plays a few notes into files of sound.")
    names = [Path(f"tune.{ending}") for ending in ("wav", "m4a", "opus")]
    parser.add_argument("outputs", type=Path, nargs="*", default=names)
    parser.add_argument("--seconds", type=float, default=NOTE_S * len(TUNE) + 1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
