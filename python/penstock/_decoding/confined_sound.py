"""Reads audio by libav in a confined process, which decodes and mixes it, and sends the samples."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from penstock._common.deadline import Deadline
from penstock._common.reports import DecoderEngine
from penstock._decoding.confined_engine import END, FRAME, LATE, RECORD, Confined, isolation_of
from penstock._decoding.from_child import FromChild
from penstock._decoding.mixing import SampleForm
from penstock._decoding.placed_sound import BLOCK_SAMPLES, Placed
from penstock._decoding.session import ChildRun
from penstock._decoding.sound_engine import SoundEngine
from penstock._facts.info import MediaInfo, exact_zero
from penstock._facts.probing import PATIENCE_S

if TYPE_CHECKING:
    from penstock._decoding.options import AudioDecodeOptions
    from penstock._facts.source import Source

# libav allows no more channels (FF_SANE_NB_CHANNELS), and needs no other letters for the name of a layout.
_MOST_CHANNELS, _LAYOUT = 512, re.compile(r"[\w .()+@-]{1,4096}")


class ConfinedSound(Confined):
    """A process that confines itself, opens the file once, and sends samples from any place on, as a `Sound`.

    Args:
        opened, options: of the decoder.
        choose: chooses the stream by the facts, and what is made of its samples.

    Attributes:
        warning: what is to be said of the end; None if that is nothing.
        is_watched: whether another thread looks for signs of life.
        media, audio, form: the facts about the file and about the stream, and what is made of it, once it was started.
    """

    warning: str | None = None
    is_watched = False
    # Set by `start`.
    media: MediaInfo
    audio: MediaInfo.Audio
    form: SampleForm

    _is_sending = False

    def __init__(
        self,
        opened: Source,
        options: AudioDecodeOptions,
        choose: Callable[[MediaInfo], tuple[MediaInfo.Audio, SampleForm]],
    ) -> None:
        title = f"<AudioDecoder {opened.path!r}>"
        super().__init__(isolation_of(opened, options), title, options.settings.stall_timeout)
        self._given = opened, options, choose

    def connect(self) -> None:
        """Waits for the facts, and says what to send."""
        (_, options, choose), isolation = self._given, self.isolation
        asked = options.stream, options.settings.threads, not options.conceal_errors
        printed = self.process.answer(self.process.call("sound", *asked), PATIENCE_S)
        media = isolation.answer(printed, MediaInfo, self.process, timeout_s=PATIENCE_S)
        self.media = isolation.named(media)
        if not all(_is_possible(media, audio) for audio in media.audio):
            raise isolation.failure(f"{isolation.path} has impossible facts", self.process)
        self.audio, self.form = choose(self.media)
        self.frame_bytes = BLOCK_SAMPLES * self.form.channels * np.dtype(self.form.dtype).itemsize
        self.process.call("mixed", self.form)

    def again(self) -> ConfinedSound:
        """Another process that reads the same."""
        sound = ConfinedSound(*self._given)
        sound.start()
        return sound

    @property
    def nearby(self) -> float:
        """As `PlacedSound.nearby`."""
        return self.answer(self.process.call("nearby"), float)

    def blocks(self, begin: int, stop: int | None) -> Iterator[Placed]:
        """As `PlacedSound.blocks`."""
        return self._sent("blocks", begin, stop)

    def more(self, stop: int | None) -> Iterator[Placed]:
        """As `PlacedSound.more`."""
        return self._sent("more", stop)

    def _sent(self, name: str, *places: int | None) -> Iterator[Placed]:
        if self._is_sending:  # what it sends belongs to a call that was broken off
            raise self._strange(0)
        self._is_sending, reached = True, -math.inf
        call = self.process.call(name, *places)
        while (record := self._record()) is not None:
            kind, at, count = RECORD.unpack_from(record)
            if kind == END:
                break
            # Samples that go back would never reach the end of what was asked for.
            if kind != FRAME or at < reached or not 0 < count <= BLOCK_SAMPLES:
                raise self._strange(0)
            samples = np.frombuffer(record, self.form.dtype, count * self.form.channels, RECORD.size)
            reached = at + count
            yield Placed(at, samples.reshape(count, -1).copy())
        self.check_usable()
        self.warning = self.answer(call, cast("type[str | None]", str | None))
        if record is None:
            raise self._strange(0)
        self._is_sending = False

    def _record(self) -> Any:
        if self.is_watched:
            return self._take(None)
        return self.wait_for(self._take, Deadline(None), LATE)


class ConfinedRun(ChildRun[ConfinedSound]):
    """A run of such a process, which has started."""

    def __init__(self, opened: Source, session: ConfinedSound) -> None:
        super().__init__(opened)
        self.opened, self._made = opened, session
        self.session  # noqa: B018 - starts it

    def _make_session(self) -> ConfinedSound:
        return self._made

    def _judged(self, run: ConfinedSound) -> None:
        run.end()


class ConfinedSoundEngine(FromChild[npt.NDArray[Any]], SoundEngine):
    """Gives blocks of samples that such a process sends. Another one sends those of windows.

    Args:
        run: the process.
        title, part: as for `SoundEngine`.
        queue_items: of the settings.
    """

    def __init__(
        self, run: ConfinedRun, title: str, part: tuple[int, int | None], queue_items: int | None
    ) -> None:
        sound = run.session
        super().__init__(run.opened, sound, title, part)
        self._may_hang = True
        reason = "isolated=True: libav reads in a sandboxed process"
        self._read_from(run, DecoderEngine("libav", reason, sound.isolation.unconfined), queue_items)

    def _fill(self, deadline: Deadline) -> None:
        sound = cast("ConfinedSound", self._sound or self._taken())
        self._sound, sound.is_watched = sound, True
        super()._fill(deadline)

    def close(self) -> None:
        """Ends both processes at once. May be called again, also by a signal handler."""
        self._is_closed = True
        if (windows := self._windows) is not None:
            windows.close()
        super().close()


def _is_possible(media: MediaInfo, audio: MediaInfo.Audio) -> bool:
    """Whether a file can have these facts, from which the size of blocks follows, and their places."""
    try:
        exact_zero(media), Fraction(audio.start_s or 0)
    except (ArithmeticError, ValueError):
        return False
    has_name = audio.channel_layout is None or _LAYOUT.fullmatch(audio.channel_layout) is not None
    return has_name and 0 < audio.channels <= _MOST_CHANNELS and audio.sample_rate > 0 and audio.time_base > 0
