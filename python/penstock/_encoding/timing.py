"""Compares what frames come with, and what the video has: times and colors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock._common.messages import argument
from penstock._encoding.container import rate_argument
from penstock._encoding.plan import EncodePlan
from penstock._ffmpeg.command.colors import UNTAGGED, VideoColors
from penstock._formats.encoders import codec_of
from penstock._formats.pixel_formats import is_gray

# A frame may be so far from its place, but less than half a frame: GIF has the coarsest unit of times, 0.01 s, to which
# the time of this frame and that of the first one were rounded.
_ROUNDED_S = 0.01
#: Chosen: at a variable rate, the last frame may be shown so much longer than the one before, without a word.
LAST_FRAME_S = 0.25


@dataclass(slots=True)
class FrameTimeCheck:
    """Where the frames of an encode come from, and whether they come in time.

    Attributes:
        lost: what the result does not have of the source of `Encoder.like`, in sentences for the report.
        is_like: the encoder was made by `Encoder.like`.
        rate_given: the caller of `Encoder.like` gave the rate.
        source_s: how long the picture of the source lasts, whose sound was kept, or only the sound's part of it if the
            rate varies; None if nothing depends on it.
        zero_s: the time of frame 0, by the times of the frames that came; None before the first.
        last_s: the time of the frame that came last.
        moved_s: how far a frame is shown from its time, where that is no error.
        is_untimed: whether a frame came without a time.
        colors: of decoded frames that are YUV.
    """

    lost: Sequence[str] = ()
    is_like: bool = False
    rate_given: bool = False
    source_s: float | None = None
    zero_s: float | None = None
    last_s: float = 0.0
    moved_s: float = 0.0
    is_untimed: bool = False
    colors: VideoColors | None = None

    @property
    def rate_from_source(self) -> bool:
        """Whether `Encoder.like` chose the rate, or that it varies."""
        return self.is_like and not self.rate_given

    def missing_time(self) -> ValueError:
        """The error of a frame without its time, at a variable rate."""
        if self.rate_from_source:
            return ValueError(
                "the frame has no time, but Encoder.like keeps the times of the source's frames. Use "
                "encoder.write(changed, time_s=frame.time_s)"
            )
        return ValueError(
            f"an encoder with {argument('fps', None)} needs the time of each frame. Use "
            "encoder.write(frame, time_s=seconds)"
        )

    def check(self, plan: EncodePlan, number: int, time_s: float, *, is_given: bool) -> None:
        """Checks that a frame is shown at its time. Notes how far it is from that, where that is no error.

        Args:
            plan: of the encode, with its constant rate.
            number: the frame's number in the video.
            time_s: its time.
            is_given: the caller gave the time, in place of one that the frame carries.

        Raises:
            ValueError: the time was given, or `Encoder.like` chose the rate; and the container could hold the time.
        """
        assert plan.rate is not None
        place_s, limit_s = float(number / plan.rate), min(_ROUNDED_S, float(1 / plan.rate / 2))
        is_strict = plan.output.facts.holds_times if self.rate_from_source else is_given
        # A caller who gave the rate counts from 0. Other times may begin anywhere: those of a part, for example.
        zero_s = 0.0 if is_given and not self.rate_from_source else self.zero_s
        begins_again = not (is_given or self.rate_from_source) and time_s <= self.last_s  # a second clip
        if zero_s is None or begins_again:
            zero_s = self.zero_s = time_s - place_s
        self.last_s = time_s
        moved_s = abs(time_s - zero_s - place_s)
        if moved_s <= limit_s:
            return
        if not is_strict:
            self.moved_s = max(self.moved_s, moved_s)
        elif self.rate_from_source:
            raise ValueError(
                f"the frame's time is {time_s:.6f} s, but it would be shown at {zero_s + place_s:.6f} s, because "
                f"frames before it were skipped, added or repeated. Pass {argument('fps', None)} to Encoder.like to "
                "show each frame at its time, or pass the rate that you want"
            )
        else:
            raise ValueError(
                f"the frame's time is {time_s:.6f} s, but frame {number} is shown at {place_s:.6f} s with "
                f"{rate_argument(plan.rate)}. Pass {argument('fps', None)} to show each frame at its time, or leave "
                "time_s out"
            )

    def warnings(self, plan: EncodePlan, ends_s: float) -> Iterable[str]:
        """What is wrong with a video whose picture ends at that time, in sentences."""
        yield from self._relabeled(plan)
        if self.moved_s and plan.rate is not None and not plan.output.are_images:
            moved = f"frames are shown up to {self.moved_s:.3f} s away from their times"
            yield (
                f"{moved}, because {plan.output.container_name} stores no times. Write mp4, mov, mkv or webm"
                if self.rate_from_source
                else f"{moved} with {rate_argument(plan.rate)}. Pass {argument('fps', None)} to keep the times, or "
                "write np.asarray(frame), which has no time"
            )
        if self.source_s is None:
            return
        lasts = f"the video lasts {ends_s:.3f} s, but its source {self.source_s:.3f} s"
        if plan.rate is None:
            if ends_s < self.source_s - LAST_FRAME_S:
                yield (
                    f"{lasts}, so the end of the audio is missing. If the source shows its last frame for long, write "
                    "that frame once more, with the time_s at which the video should end"
                )
        elif not self.is_untimed and ends_s < self.source_s - max(LAST_FRAME_S, 1.5 / plan.rate):
            yield f"{lasts}, so the end of the audio is missing"
        elif self.is_untimed and ends_s < self.source_s - 1.5 / plan.rate:
            yield (
                f"{lasts}, so frames and the end of the audio are missing. Use "
                "encoder.write(changed, time_s=frame.time_s) to check each frame's time"
            )

    def _relabeled(self, plan: EncodePlan) -> Iterable[str]:
        """Decoded YUV whose samples pass through, under tags that it didn't have."""
        if self.colors is None or plan.colors is None or is_gray(plan.pixel_format):
            return
        for name in ("matrix", "range"):
            has, actual = getattr(self.colors, name), getattr(plan.colors, name)
            is_auto = getattr(plan.request.colors, name) == "auto"
            if is_auto and actual != (UNTAGGED.matrix if has == "untagged" else has):
                tags = f"Pass {argument(f'colors.{name}', has)}, use Encoder.like, or read"
                yield (
                    f"the frames' {name} is {has!r}, but the video's is {actual!r}, so its colors are different. "
                    f"{'Read' if codec_of(plan.codec).is_jpeg else tags} the frames with "
                    f"{argument('pixel_format', 'rgb24')}"
                )
