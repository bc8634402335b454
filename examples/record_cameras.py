"""Four cameras at once, on a thread each, with the times of one clock. The encoder of one is too slow.

    python examples/record_cameras.py --folder recordings --seconds 10

No camera waits for its encoder: a frame for which there is no room is left out. Beside each video is a table with a row
for each frame that the video has. The end of the program checks that they agree.
"""

from __future__ import annotations

import argparse
import csv
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
from numpy_loop import WavePainter
from rich.console import Console
from rich.table import Table

from penstock import Decoder, Encoder, FanOut
from penstock.video import OutputReport

SIZE, FPS = (640, 480), 30
# The preset of each camera's encoder.
CAMERAS = {"door": "ultrafast", "yard": "ultrafast", "hall": "ultrafast", "gate": "veryslow"}
# Matroska's unit of time.
UNIT_S = 0.001
# With crash_safe=True, a kill costs the last second of a file at most, as docs/how-to/recording.md says.
NO_DELAY = {"tune": "zerolatency", "threads": 1}


def open_recorder(path: Path, preset: str) -> FanOut:
    recorder = FanOut()
    encoder = Encoder(path, size=SIZE, fps=None, preset=preset, crash_safe=True, options=NO_DELAY)
    recorder.add(encoder, when_full="drop")
    return recorder


def record(
    recorder: FanOut, table: Path, frames: int, started_s: float, ended: threading.Event
) -> OutputReport:
    """Records what a camera gives, 30 frames a second, each at the time when it came."""
    painter, frame = WavePainter(*SIZE), np.empty((SIZE[1], SIZE[0], 3), np.uint8)
    with recorder, table.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["frame", "time_s"])
        taken = 0
        for number in range(frames):
            if ended.wait(max(0, started_s + number / FPS - time.monotonic())):
                break
            painter.paint(frame, number / FPS)
            time_s = time.monotonic() - started_s
            [is_taken] = recorder.write(frame, time_s=time_s)
            if is_taken:
                rows.writerow([taken, f"{time_s:.6f}"])  # and what the robot's sensors say, for example
                taken += 1
    return recorder.reports[0]


def agree(video: Path, table: Path) -> bool:
    """Whether the rows of the table are the frames of the video, with the same times."""
    with table.open(newline="") as file:
        rows = [(int(row["frame"]), float(row["time_s"])) for row in csv.DictReader(file)]
    with Decoder(video) as decoder:
        frames = [(frame.index, frame.time_s) for frame in decoder]
    return len(rows) == len(frames) and all(
        row == frame and abs(row_s - frame_s) < UNIT_S
        for (row, row_s), (frame, frame_s) in zip(rows, frames, strict=True)
    )


def main() -> None:
    options = parse_options()
    options.folder.mkdir(parents=True, exist_ok=True)
    videos = [options.folder / f"{name}.mkv" for name in CAMERAS]
    tables = [video.with_suffix(".csv") for video in videos]
    recorders = [*map(open_recorder, videos, CAMERAS.values())]
    started_s, ended = time.monotonic(), threading.Event()
    with ThreadPoolExecutor(len(CAMERAS)) as pool:
        recordings = [
            pool.submit(record, recorder, table, round(FPS * options.seconds), started_s, ended)
            for recorder, table in zip(recorders, tables, strict=True)
        ]
        try:
            wait(recordings)
        except KeyboardInterrupt:
            ended.set()
    summary = Table("camera", "taken", "dropped", "rows are frames")
    for name, recording, video, table in zip(CAMERAS, recordings, videos, tables, strict=True):
        report = recording.result()
        is_right = "yes" if agree(video, table) else "no"
        summary.add_row(name, str(report.frames_taken), str(len(report.dropped)), is_right)
    Console().print(summary)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Records four cameras, one of them with a slow encoder.")
    parser.add_argument("--folder", type=Path, default=Path("recordings"))
    parser.add_argument("--seconds", type=float, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    main()
