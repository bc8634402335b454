"""`prefetch`: decoders of several files, opened ahead, in order."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import closing
from pathlib import Path

import pytest
from support.cases import eventually
from support.clips import clip
from support.media import children
from support.media import nothing_is_left as nothing_is_left
from support.processes import script

from penstock import ClosedError, Decoder, DecoderError
from penstock.video import DecoderSettings, find_ffmpeg, prefetch

NAMES = ["h264", "h264_large", "vp9", "h264_mkv", "h264_ts", "h264"]


def test_files_are_read_in_order_and_closed_one_by_one() -> None:
    last: Decoder | None = None
    sizes = []
    for decoder in prefetch([clip(name) for name in NAMES]):
        assert last is None or last.closed
        assert not decoder.closed and len(list(decoder)) == (
            decoder.stream.frames or len(list(Decoder(clip(NAMES[len(sizes)]))))
        )
        sizes.append(decoder.size)
        last = decoder
    assert sizes == [(64, 48), (322, 182), (64, 48), (64, 48), (64, 48), (64, 48)]
    assert last is not None and last.closed


@pytest.mark.parametrize("settings", [DecoderSettings(), DecoderSettings(ffmpeg=find_ffmpeg())])
def test_ahead_limits_the_open_files_and_paths_are_taken_one_by_one(settings: DecoderSettings) -> None:
    taken = []

    def paths():  # type: ignore[no-untyped-def]
        for number in range(8):
            taken.append(number)
            yield clip("long")

    before, running = children(), 0 if settings.ffmpeg is None else 4
    with closing(prefetch(paths(), ahead=3, settings=settings)) as decoders:
        assert taken == []
        next(decoders)
        assert taken == [0, 1, 2, 3]
        assert eventually(lambda: len(children() - before) == running)
        next(decoders)
        assert taken == [0, 1, 2, 3, 4]
        assert eventually(lambda: len(children() - before) == running)
    assert children() == before


def test_waiting_decoder_reads_no_more_than_its_queue() -> None:
    with closing(prefetch([clip("h264")] * 2, ahead=1, settings=DecoderSettings(queue_items=2))) as decoders:
        next(decoders)
        time.sleep(0.5)  # enough for all of it
        waited = next(decoders)
        assert waited.stats.frames_delivered == 0 and waited.stats.frames_read <= 3
        assert len(list(waited)) == 30


def test_options_apply_to_every_decoder() -> None:
    for decoder in prefetch([clip("h264")] * 3, pixel_format="gray", count=2):
        assert [frame.shape for frame in decoder] == [(48, 64)] * 2


def test_error_is_raised_at_the_turn_of_its_file(tmp_path: Path) -> None:
    paths = [clip("h264"), clip("h264"), tmp_path / "missing.mp4", clip("h264")]
    opened = 0
    with pytest.raises(FileNotFoundError):
        for decoder in prefetch(paths, ahead=3):
            assert len(list(decoder)) == 30
            opened += 1
    assert opened == 2


def test_loop_that_is_left_closes_every_decoder() -> None:
    before, opened = children(), []
    for decoder in prefetch([clip("long")] * 9):
        opened.append(decoder)
        break
    assert opened[0].closed and children() == before
    with pytest.raises(ZeroDivisionError):
        for decoder in prefetch([clip("long")] * 9):
            opened.append(decoder)
            raise ZeroDivisionError
    assert opened[1].closed and children() == before


def test_empty_list_returns_no_decoder() -> None:
    assert list(prefetch([])) == []


@pytest.mark.parametrize("ahead", [0, -1])
def test_ahead_must_be_at_least_one(ahead: int) -> None:
    with pytest.raises(ValueError):
        prefetch([], ahead=ahead)


def test_wrong_option_raises() -> None:
    with pytest.raises(TypeError):
        next(prefetch([clip("h264")], no_such=1))  # type: ignore[call-arg]


@pytest.mark.linux("forks")
def test_forked_child_gets_a_closed_prefetch() -> None:
    with closing(prefetch([clip("h264")] * 4)) as decoders:
        next(decoders)
        if (pid := os.fork()) == 0:
            try:
                next(decoders)
            except ClosedError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert len(list(next(decoders))) == 30


def test_failed_ffmpeg_raises_at_its_turn(tmp_path: Path) -> None:
    bad = tmp_path / "bad.mp4"
    shutil.copy(clip("h264"), bad)
    program = script(tmp_path / "ffmpeg", f'case "$*" in *bad*) exit 3;; esac; exec {find_ffmpeg()} "$@"')
    decoders = prefetch([clip("h264"), bad], settings=DecoderSettings(ffmpeg=program))
    assert len(list(next(decoders))) == 30
    with pytest.raises(DecoderError), closing(next(decoders)) as decoder:
        decoder.read()
