"""The rates that containers can have."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from penstock._common.messages import argument
from penstock._encoding.sound import Sound
from penstock._ffmpeg.command.endpoints import Output

# FFmpeg's reader of NUT ignores a frame rate of this or more (decode_info_header in libavformat/nutdec.c; 5.1 to 9).
_TOO_MANY_FPS_WITH_SOUND = 1000


def rate_argument(rate: Fraction | None) -> str:
    """The argument that gave the rate, for messages."""
    if rate is None:
        return argument("fps", None)
    return argument("fps", rate.numerator if rate.denominator == 1 else float(rate))


def check_rate(rate: Fraction | None, output: Output, sounds: Sequence[Sound]) -> None:
    """Checks that the container and the stream to FFmpeg can have frames of that rate, or with times."""
    if rate is None:
        if output.are_images:
            raise ValueError(
                f"{argument('fps', None)} needs a container with times, and images have none. Pass "
                f"{argument('fps', 30)}"
            )
        return
    given = rate_argument(rate)
    if (most := output.facts.most_fps) is not None and rate > most:
        instead = argument("fps", output.facts.slow_fps or most)
        raise ValueError(
            f"{given} is too much for {output.container_name}, whose times are multiples of 1/{most} s. Pass "
            f"{instead} or less, or write mp4 or mov"
        )
    if sounds and rate >= _TOO_MANY_FPS_WITH_SOUND:
        raise ValueError(
            f"{given} is too much with audio, where the rate must be below {_TOO_MANY_FPS_WITH_SOUND}. Pass "
            f"{argument('fps', None)}, and the time of each frame: encoder.write(frame, time_s=seconds)"
        )
