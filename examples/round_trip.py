"""A video in, NumPy on every frame, a video out: here its negative, with its sound.

    python examples/round_trip.py holiday.mp4 --output negative.mp4

`Decoder` reads ahead while NumPy computes, and `Encoder.write` takes what comes of it. The sound is copied where the
container takes it. Frames of a variable rate keep their times, and so do those that begin later than the sound.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from penstock import Decoder, Encoder


def main() -> None:
    options = parse_options()
    with Decoder(options.source) as decoder:
        rate = decoder.info.frame_rate or 25  # a file of one picture has none
        has_times = decoder.info.is_variable_frame_rate or bool(decoder.info.start_s)
        sound = options.source if decoder.media.audio else None
        with Encoder(
            options.output, size=decoder.size, fps=None if has_times else rate, audio=sound
        ) as encoder:
            for frame in decoder:
                encoder.write(255 - frame, pts=frame.time_s if has_times else None)
    print(f"{options.output}: {encoder.frames_submitted} frames of {decoder.size[0]}x{decoder.size[1]}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Makes the negative of a video.")
    parser.add_argument("source", type=Path)
    parser.add_argument("--output", type=Path, default=Path("negative.mp4"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
