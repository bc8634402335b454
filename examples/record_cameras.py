"""Four cameras at once, on a thread each, with the times of one clock. The encoder of one is too slow.

    python examples/record_cameras.py --folder recordings --seconds 10

No camera waits for its encoder: the newest frame takes the place of one for which there was no room. A camera with a
constant rate gets the frame before once more for each that was left out.
"""

from __future__ import annotations

import argparse
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
from numpy_loop import WavePainter
from rich.console import Console
from rich.table import Table

from penstock import Encoder, FanOut
from penstock.cpu import ThreadPolicy
from penstock.video import OutputReport, Tuning

SIZE, FPS = (640, 480), 30
SLOW = Tuning(queue_items=2, ffmpeg_policy=ThreadPolicy(nice=19))
# The rate of each camera, None for the time of each frame, and the preset and tuning of its encoder.
CAMERAS = {
    "door": (None, "ultrafast", Tuning()),
    "yard": (None, "ultrafast", Tuning()),
    "hall": (FPS, "ultrafast", Tuning()),
    "gate": (None, "veryslow", SLOW),
}
# A crash costs the last second of a file at most, as docs/how-to/recording.md says.
SAFE = {"tune": "zerolatency", "flush_packets": 1, "cluster_time_limit": 500, "threads": 1}


def open_recorder(path: Path, fps: int | None, preset: str, tuning: Tuning) -> FanOut:
    encoder = Encoder(path, size=SIZE, fps=fps, preset=preset, options=SAFE, tuning=tuning)
    recorder = FanOut()
    recorder.add(encoder, when_full="replace")
    return recorder


def record(
    recorder: FanOut, is_timed: bool, frames: int, started_s: float, ended: threading.Event
) -> OutputReport:
    """Records what a camera gives, 30 frames a second, each at the time when it came."""
    painter, frame = WavePainter(*SIZE), np.empty((SIZE[1], SIZE[0], 3), np.uint8)
    with recorder:
        for number in range(frames):
            if ended.wait(max(0, started_s + number / FPS - time.monotonic())):
                break
            painter.paint(frame, number / FPS)
            recorder.write(frame, time_s=time.monotonic() - started_s if is_timed else None)
    return recorder.reports[0]


def main() -> None:
    options = parse_options()
    options.folder.mkdir(parents=True, exist_ok=True)
    recorders = [open_recorder(options.folder / f"{name}.mkv", *given) for name, given in CAMERAS.items()]
    started_s, ended = time.monotonic(), threading.Event()
    with ThreadPoolExecutor(len(CAMERAS)) as pool:
        recordings = [
            pool.submit(record, recorder, fps is None, round(FPS * options.seconds), started_s, ended)
            for recorder, (fps, *_) in zip(recorders, CAMERAS.values(), strict=True)
        ]
        try:
            wait(recordings)
        except KeyboardInterrupt:
            ended.set()
    table = Table("camera", "taken", "dropped", "repeated")
    for name, recording in zip(CAMERAS, recordings, strict=True):
        report = recording.result()
        counts = report.frames_taken, report.frames_dropped, report.frames_repeated
        table.add_row(name, *map(str, counts))
    Console().print(table)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Records four cameras, one of them with a slow encoder.")
    parser.add_argument("--folder", type=Path, default=Path("recordings"))
    parser.add_argument("--seconds", type=float, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    main()
