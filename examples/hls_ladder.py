"""One render as an HLS ladder: the same video in three sizes, and a master playlist from which a player chooses.

    python examples/hls_ladder.py --output ladder

Segments of all sizes begin at the same frames, so that a player can change the size at each. The master playlist says
what was measured when all is encoded: the bit rate of the largest segment, the codec and the size. A size whose encoder
failed isn't in it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy_loop import WavePainter

from penstock import Encoder, FanOut, probe
from penstock.video import EncodeReport, OutputReport

PLAYLIST = "stream.m3u8"
SEGMENT_S = 2
# Heights, and bits a second that a player can count on.
LADDER = {1080: 5_000_000, 720: 2_500_000, 360: 800_000}


def rung(folder: Path, height: int, fps: int) -> Encoder:
    """An encoder that writes segments of MP4, a playlist of them, and ``init.mp4``, which names the codec."""
    folder.mkdir(parents=True, exist_ok=True)
    rate = LADDER[height]
    options = {
        "vf": f"scale=-2:{height}",
        "b:v": rate,
        "maxrate": rate,
        "bufsize": 2 * rate,
        # A key frame at the beginning of each segment, and nowhere else.
        "g": SEGMENT_S * fps,
        "keyint_min": SEGMENT_S * fps,
        "sc_threshold": 0,
        "hls_time": SEGMENT_S,
        "hls_list_size": 0,
        "hls_segment_type": "fmp4",
    }
    return Encoder(folder / PLAYLIST, fps=fps, preset="veryfast", codec="libx264", options=options)


def master_playlist(folder: Path, reports: Sequence[OutputReport]) -> str:
    """Lists the playlists that were finished, with what is in them (RFC 8216, section 4.3.4.2)."""
    lines = ["#EXTM3U", "#EXT-X-VERSION:7", "#EXT-X-INDEPENDENT-SEGMENTS"]
    for report in reports:
        if isinstance(report.result, EncodeReport) and report.error is None:
            playlist = Path(report.result.output)
            video = probe(playlist, follow_playlists=True).video[0]
            facts = {
                "BANDWIDTH": peak_rate(playlist),
                "RESOLUTION": f"{video.width}x{video.height}",
                "FRAME-RATE": f"{float(video.frame_rate):.3f}",
                "CODECS": f'"{codec_name(playlist.with_name("init.mp4"))}"',
            }
            lines.append("#EXT-X-STREAM-INF:" + ",".join(f"{name}={value}" for name, value in facts.items()))
            lines.append(Path(os.path.relpath(playlist, folder)).as_posix())
    return "\n".join([*lines, ""])


def peak_rate(playlist: Path) -> int:
    """Bits a second of the segment that needs most."""
    lines = playlist.read_text().splitlines()
    segments = [(line, name) for line, name in pairwise(lines) if line.startswith("#EXTINF:")]
    return max(
        round(8 * (playlist.parent / name).stat().st_size / float(line.removeprefix("#EXTINF:").rstrip(",")))
        for line, name in segments
    )


def codec_name(init: Path) -> str:
    """By the profile, its constraints and the level in the header of H.264 (RFC 6381, section 3.3)."""
    header = init.read_bytes()
    facts = header.index(b"avcC") + len(b"avcC") + 1
    return "avc1." + header[facts : facts + 3].hex()


def main() -> None:
    options = parse_options()
    width, height = options.size
    painter = WavePainter(width, height)
    frame = np.empty((height, width, 3), np.uint8)
    rungs = [rung(options.output / f"{rows}p", rows, options.fps) for rows in options.heights]
    with FanOut(rungs) as fan_out:
        for index in range(options.frames):
            painter.paint(frame, index / options.fps)
            fan_out.write(frame)
        reports = fan_out.close()
    for report in reports:
        if report.error is not None:
            print(f"left out: {report.error}", file=sys.stderr)
    if all(report.error is not None for report in reports):
        sys.exit("nothing was encoded")
    master = options.output / "master.m3u8"
    master.write_text(master_playlist(options.output, reports))
    print(master.read_text(), end="")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Paints moving waves into an HLS ladder.")
    parser.add_argument("--output", type=Path, default=Path("ladder"))
    parser.add_argument("--size", type=int, nargs=2, default=(1920, 1080), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--heights", type=int, nargs="+", choices=LADDER, default=list(LADDER))
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--fps", type=int, default=30)
    return parser.parse_args()


if __name__ == "__main__":
    main()
