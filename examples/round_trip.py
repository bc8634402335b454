"""A video in, NumPy on every frame, a video out: here its negative, with its sound.

    python examples/round_trip.py holiday.mp4 --output negative.mp4

`Decoder` reads ahead while NumPy computes, and `Encoder.write` takes what comes of it. `Encoder.like` gives the result
what the source has: the times of its frames, its sound, colors, metadata.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from penstock import Decoder, Encoder


def main() -> None:
    options = parse_options()
    with Decoder(options.source) as decoder, Encoder.like(decoder, options.output) as encoder:
        for frame in decoder:
            encoder.write(255 - frame, time_s=frame.time_s)
    print(f"{options.output}: {encoder.frames_submitted} frames of {decoder.size[0]}x{decoder.size[1]}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Makes the negative of a video.")
    parser.add_argument("source", type=Path)
    parser.add_argument("--output", type=Path, default=Path("negative.mp4"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
