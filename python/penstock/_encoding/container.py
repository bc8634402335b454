"""The times that containers hold, and their steps."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from penstock._common.messages import argument
from penstock._encoding.sound import Sound
from penstock._ffmpeg.command.arguments import TICK_S
from penstock._ffmpeg.command.endpoints import Output

# The unit of times in MP4 and QuickTime, in seconds: that of MPEG-2 systems, in which all common frame rates are exact.
# In units of 1 µs, FFmpeg loses frames after a pause of 5 minutes, and a pause of 36 minutes breaks the file.
_QUICKTIME_UNIT_S = Fraction(1, 90_000)
_QUICKTIME = ("ipod", "mov", "mp4")
# The most units of time from a frame to the next, in MP4 and QuickTime. The files have 31 bits, but FFmpeg 5.1 refuses
# more than 28 bits between the decoding of a frame and its display (mov_read_ctts in libavformat/mov.c).
_MOST_STEPS = 2**28 - 1
_GIF_UNIT_S = Fraction(1, 100)
# The longest time from a frame to the next in GIF, in seconds: a delay has 16 bits.
_LONGEST_STEP_OF_GIF_S = 0xFFFF * _GIF_UNIT_S
# FFmpeg's reader of NUT ignores a frame rate of this or more (decode_info_header in libavformat/nutdec.c; 5.1 to 9).
_TOO_MANY_FPS_WITH_SOUND = 1000
# The unit of times in Matroska and WebM is 1 ms.
_MOST_FPS_OF_MATROSKA = 1000
# Containers that hold the time of each frame.
_TIMED = (*_QUICKTIME, "gif", "matroska", "webm")


def holds_times(output: Output) -> bool:
    """Whether an output is known to hold the times of frames."""
    return output.container in _TIMED


def is_quicktime(output: Output) -> bool:
    """Whether an output is MP4 or QuickTime."""
    return output.container in _QUICKTIME


def holds_length(output: Output) -> bool:
    """Whether an output says how long the last of its timed frames is shown, by the duration of its packet."""
    return holds_times(output) and output.container != "gif"


def time_unit_s(output: Output) -> Fraction:
    """The unit of the frames' times that the container holds, in seconds."""
    return _QUICKTIME_UNIT_S if is_quicktime(output) else TICK_S


def distinct_unit_s(output: Output) -> Fraction:
    """Two frames must differ in their times by this unit, in seconds. Not checked if `longest_step_s` is None."""
    return _GIF_UNIT_S if output.container == "gif" else time_unit_s(output)


def longest_step_s(output: Output) -> Fraction | None:
    """The longest time from a frame to the next that the container holds, in seconds; None for any."""
    if output.container == "gif":
        return _LONGEST_STEP_OF_GIF_S
    unit_s = time_unit_s(output)
    return None if unit_s == TICK_S else Fraction(int(_MOST_STEPS * unit_s))


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
    if output.container == "gif" and rate * _GIF_UNIT_S > 1:
        raise ValueError(
            f"{given} is too much for GIF, which counts hundredths of a second. Pass {argument('fps', 50)} or less"
        )
    if rate > _MOST_FPS_OF_MATROSKA and output.is_matroska:
        raise ValueError(f"{given} is too much for a container that counts milliseconds. Write mp4 or mov")
    if sounds and rate >= _TOO_MANY_FPS_WITH_SOUND:
        raise ValueError(
            f"{given} is too much with audio, where the rate must be below {_TOO_MANY_FPS_WITH_SOUND}. Pass "
            f"{argument('fps', None)}, and the time of each frame: encoder.write(frame, time_s=seconds)"
        )
