"""Whatever ffprobe prints becomes a `MediaInfo` or a `DecoderError`, and whatever FFmpeg prints can be read.

`make fuzz` tries longer: `PENSTOCK_FUZZ_S` seconds for each test.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

import pytest
from conftest import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import DecoderError
from penstock.ffmpeg.diagnostics import damage_reports
from penstock.ffmpeg.media import MediaInfo
from penstock.ffmpeg.probe import media_info, parse_answer
from penstock.ffmpeg.process import FFmpegProcess

FUZZ_S = int(os.environ.get("PENSTOCK_FUZZ_S", "0"))
# Measured: a hundred take some seconds on a busy machine.
EXAMPLES = FUZZ_S * 100 or examples(100).max_examples
pytestmark = pytest.mark.timeout(max(120, FUZZ_S * 10))

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
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 2**70), st.floats(), WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=6,
)
KEYS = (
    *("codec_type", "codec_name", "index", "width", "height", "time_base", "avg_frame_rate", "r_frame_rate"),
    *("sample_aspect_ratio", "field_order", "color_space", "color_range", "pix_fmt", "profile", "nb_frames"),
    *("duration", "start_time", "bits_per_raw_sample", "bit_rate", "tags", "disposition", "side_data_list"),
    *("sample_rate", "channels", "channel_layout", "sample_fmt"),
)
LIKE_A_STREAM = {"codec_type": "video", "index": 0, "width": 64, "height": 48, "time_base": "1/25"}
STREAMS = st.dictionaries(st.sampled_from(KEYS), st.one_of(WORDS, VALUES), max_size=8).flatmap(
    lambda odd: st.booleans().map(lambda alike: LIKE_A_STREAM | odd if alike else odd)
)
FORMATS = st.dictionaries(
    st.sampled_from(
        ["duration", "start_time", "bit_rate", "size", "tags", "format_long_name", "format_name"]
    ),
    st.one_of(WORDS, VALUES),
    max_size=4,
)


def probed(answer: bytes) -> None:
    told = parse_answer(answer)
    if "format_name" in told.get("format", {}):
        with contextlib.suppress(DecoderError):
            assert isinstance(media_info("clip.mkv", "ffprobe", told, is_counted=False), MediaInfo)


@anything
@given(FORMATS, st.one_of(st.lists(STREAMS, max_size=3), VALUES))
def test_any_json_is_a_record_or_an_error(container: dict[str, Any], streams: Any) -> None:
    probed(json.dumps({"format": {"format_name": "matroska"} | container, "streams": streams}).encode())


@anything
@given(st.one_of(st.binary(max_size=200), VALUES.map(lambda value: json.dumps(value).encode())))
def test_any_bytes_are_a_record_or_an_error(answer: bytes) -> None:
    probed(answer)


@anything
@given(st.lists(st.one_of(st.text(max_size=30), st.builds("{}={}\n".format, WORDS, WORDS)), max_size=8))
def test_any_progress_is_counts_or_nothing(lines: list[str]) -> None:
    process = FFmpegProcess("ffmpeg", (), is_strict=True, stdout=None, error=DecoderError)
    for line in lines:
        process._take_progress(line.encode(errors="replace"))
    assert process.frames >= 0 and (process.output_bytes or 0) >= 0


@anything
@given(st.text(max_size=300))
def test_any_stderr_has_damage_reports_or_none(stderr: str) -> None:
    assert all(line in stderr for line in damage_reports(stderr))
