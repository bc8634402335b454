"""The test pattern of a rehearsal: four pictures and a tone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

import av
import numpy as np
import numpy.typing as npt
from av.error import FFmpegError as LibavError

from penstock._decoding.planes import plane_rows
from penstock._encoding.encoders import LOSSLESS
from penstock._encoding.sound import AudioTrack
from penstock._formats.pixel_formats import has_palette

if TYPE_CHECKING:
    from penstock._encoding.plan import EncodePlan

# When frames are shown that come with their times, in seconds. Chosen: not evenly, but in steps that GIF has, too.
_TIMES_S = (Fraction(0), Fraction(1, 25), Fraction(3, 25), Fraction(5, 25))
_TONE_S, _TONE_HZ = Fraction(1, 5), 440


@dataclass(frozen=True, slots=True)
class Picture:
    """A frame that was written.

    Attributes:
        time_s: when it is shown.
        samples: as the encoder takes it, in the pixel format of its frames.
        rgb: how the video shows it, as height × width × 3 of uint8; None if nobody knows.
        exact_rgb: the samples as RGB, without the loss of the video's pixel format.
    """

    time_s: Fraction
    samples: npt.NDArray[np.uint8]
    rgb: npt.NDArray[np.uint8] | None
    exact_rgb: npt.NDArray[np.uint8] | None = None

    @classmethod
    def of(cls, time_s: Fraction, rgba: npt.NDArray[np.uint16], plan: EncodePlan) -> Self:
        """The picture `rgba` as that plan takes it; or noise, if libav can't make its pixel format."""
        layout = plan.frames
        try:
            # `rgba` has 4 channels of 16 bits.
            frame = av.VideoFrame.from_ndarray(rgba, "rgba64le").reformat(format=layout.pixel_format)
            rows = [
                np.frombuffer(memoryview(plane), np.uint8, count * plane.line_size).reshape(count, -1)[
                    :, :nbytes
                ]
                for plane, (count, nbytes) in zip(frame.planes, plane_rows(frame), strict=True)
            ]
            # As gray, for example, if the video has no colors.
            shown = plan.output_pixel_format or layout.pixel_format
            shown = layout.pixel_format if has_palette(shown) else shown
            # As pictures are compared.
            rgb: Any = frame.reformat(format=shown).reformat(format="rgb24").to_ndarray()
            exact: Any = frame.reformat(format="rgb24").to_ndarray()
        except (LibavError, ValueError):
            noise = np.random.default_rng(int(time_s * 1000)).integers(0, 256, layout.frame_bytes, np.uint8)
            return cls(time_s, noise, None)
        return cls(time_s, np.concatenate([one.reshape(-1) for one in rows]), rgb, exact)


def pictures_for(plan: EncodePlan) -> Iterable[Picture]:
    """Four frames, all different: the first has noise, and the others move a little, so that encoders reorder them."""
    width, height, rate = plan.frames.width, plan.frames.height, plan.rate
    times_s = _TIMES_S if rate is None else [number / rate for number in range(len(_TIMES_S))]
    rows, columns = np.mgrid[:height, :width] / max(width, height)
    random = np.random.default_rng(0)
    for number, time_s in enumerate(times_s):
        # Red, green and blue are far apart everywhere.
        channels = (
            230 - 120 * rows,
            60 + 16 * number + 60 * columns,  # measured: x264 and x265 reorder these in most sizes
            20 + 50 * rows,
            np.full(rows.shape, 255),
        )
        rgba = np.stack(channels, -1)
        if plan.request.quality == LOSSLESS:
            rgba = random.uniform(0, 256, rgba.shape)  # every bit, and alpha
        elif number == 0:
            rgba[..., :3] += random.uniform(-40, 40, (height, width, 3))
        yield Picture.of(time_s, (rgba.clip(0, 255) * 257).astype(np.uint16), plan)


def tone(track: AudioTrack) -> npt.NDArray[Any]:
    """A fifth of a second of a tone at half the full scale."""
    wave = np.sin(2 * np.pi * _TONE_HZ * np.arange(int(_TONE_S * track.sample_rate)) / track.sample_rate) / 2
    if track.dtype != "float32":
        wave *= np.iinfo(track.dtype).max
    return np.repeat(wave.astype(track.dtype)[:, np.newaxis], track.channels, axis=1)
