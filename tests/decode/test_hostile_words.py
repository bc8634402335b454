"""Whatever is in a file, `probe` gives a `MediaInfo` or a `DecoderError`, and whatever FFmpeg prints can be read.

`make fuzz` tries longer: `PENSTOCK_FUZZ_S` seconds for each test.
"""

from __future__ import annotations

import contextlib
import os
import tempfile

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.cases import examples
from support.clips import clip

from penstock import DecoderError, probe
from penstock._ffmpeg.program.messages import StderrLog, damage_reports
from penstock._ffmpeg.program.process import FFmpegProcess
from penstock.video import MediaInfo

FUZZ_S = int(os.environ.get("PENSTOCK_FUZZ_S", "0"))
# Measured: a hundred take some seconds on a busy machine.
EXAMPLES = FUZZ_S * 100 or examples(100).max_examples
pytestmark = pytest.mark.timeout(max(300, FUZZ_S * 10))

anything = settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))

WORDS = st.one_of(
    st.sampled_from(
        ["N/A", "", "unknown", "0/0", "0:1", "1/0", "30000/1001", "1/90000", "nan", "inf", "1e400"]
    ),
    st.sampled_from(
        ["-1", "0", "2", "²", "٣", "9" * 5000, "video", "audio", "yuv420p10le", "tt", "rgb565le"]
    ),
    st.text(max_size=12),
)
CONTAINERS = ("h264", "h264_mkv", "h264_ts", "vp9", "gif", "audio_aac", "prores", "mjpeg_420")


@anything
@given(st.sampled_from(CONTAINERS), st.floats(0, 1), st.binary(min_size=1, max_size=200))
@example("h264_ts", 0.6421892487244402, b"\x02")  # begins a stream in the middle
@example("audio_aac", 0.32703476756142763, b"\x02")  # a size for which libav gets no memory
def test_damaged_file_is_probed_or_raises_decoder_error(name: str, place: float, words: bytes) -> None:
    """Most of what describes a file is at its beginning or end."""
    data = clip(name).read_bytes()
    at = (
        round(place * min(4096, len(data)))
        if words[0] % 2
        else len(data) - round(place * min(4096, len(data)))
    )
    with tempfile.NamedTemporaryFile(suffix=clip(name).suffix) as file:
        file.write(data[:at] + words + data[at + len(words) :])
        file.flush()
        with contextlib.suppress(DecoderError):
            assert isinstance(probe(file.name), MediaInfo)


@anything
@given(st.lists(st.one_of(st.text(max_size=30), st.builds("{}={}\n".format, WORDS, WORDS)), max_size=8))
def test_arbitrary_progress_lines_become_counts_or_nothing(lines: list[str]) -> None:
    process = FFmpegProcess("ffmpeg", (), is_strict=True, stdout=None, error=DecoderError)
    for line in lines:
        process._take_progress(line.encode(errors="replace"))
    assert process.frames >= 0 and (process.output_bytes or 0) >= 0


@anything
@given(st.text(max_size=300))
def test_arbitrary_stderr_is_searched_for_damage_without_an_error(stderr: str) -> None:
    log = StderrLog()
    for line in stderr.split("\n"):
        log.take(line.encode(errors="replace"))
    assert damage_reports(log.reports) <= log.reports
