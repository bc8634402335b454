"""The `AudioEncoder`: samples in, a file of sound out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import BinaryIO

import numpy.typing as npt

from penstock._native import Ticket
from penstock.ffmpeg.encoder_base import EncoderBase
from penstock.ffmpeg.plan.encode_plan import plan_sound
from penstock.ffmpeg.plan.encode_settings import EncodeSettings
from penstock.ffmpeg.plan.settings import DEFAULT_TUNING, Tuning
from penstock.ffmpeg.plan.sound import AudioInput


class AudioEncoder(EncoderBase):
    """Encodes samples with FFmpeg, which it starts and feeds from a native thread, to a file without a picture.

    ```python
    with AudioEncoder("tone.flac", AudioInput(48_000, channels=2)) as encoder:
        encoder.write(samples)
    ```

    Its end, its files, its errors and its behaviour in a ``fork`` are those of an `Encoder`.

    Args:
        output: the file to write, as for `Encoder`.
        audio: the rate, channels and type of the samples, and their codec. Without one, the codec follows from the
            output's name: WAV, W64, AIFF, AU and CAF keep the samples as they are.
        options: FFmpeg's output options without their dash, ``{"b:a": "192k"}``, as for `Encoder`.
        tuning: transport, queue, programs and timeouts.

    Raises:
        ValueError: nothing tells the container, or an argument is not possible.
        TypeError: an argument has a wrong type.
        OSError: the output cannot be written, as for `Encoder`.
        EncoderError: FFmpeg was not found, could not be started, or has no such codec.
    """

    def __init__(
        self,
        output: str | os.PathLike[str] | BinaryIO,
        audio: AudioInput,
        *,
        options: Mapping[str, object] | None = None,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        super().__init__()
        self._settings = EncodeSettings.of_sound(output, audio, options, tuning)
        self._start(plan_sound(self._settings))

    def write(self, samples: npt.ArrayLike, *, timeout: float | None = None) -> Ticket:
        """Copies samples and queues them; waits while the queue is full. They follow those of the call before.

        Args:
            samples: samples × channels, of the dtype of the `AudioInput`; or one dimension for one channel. It need not
                be contiguous.
            timeout: seconds to wait for room in the queue; None waits as long as it takes.

        Returns:
            A ticket, done when FFmpeg has the samples.

        Raises:
            ValueError: the samples have another shape or dtype, or are not finite.
            TypeError: they are no array.
            StalledError: no room within `timeout`, or no sign of life from FFmpeg for ``stall_timeout``; the samples
                are not queued.
            EncoderError: FFmpeg has failed; the message includes its output.
            ClosedError: after ``close`` or ``abort``.
        """
        session = self._session
        return session.queue(session.push_of_samples(samples), timeout)

    async def awrite(self, samples: npt.ArrayLike, *, timeout: float | None = None) -> Ticket:
        """`write` for asyncio: while the queue is full, the event loop goes on.

        Args:
            samples: as for `write`. The memory must not change until this returns.
            timeout: as for `write`.

        Raises:
            ValueError, TypeError, StalledError, EncoderError, ClosedError: as for `write`.
        """
        session = self._session
        return await session.queue_async(partial(session.push_of_samples, samples), timeout)
