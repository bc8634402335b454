"""What an encode has lost: its file is read back and compared, and what was fed is counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from penstock._encoding import listed
from penstock._encoding.feed import RawFeed
from penstock._encoding.output import Destination
from penstock._encoding.plan import EncodePlan
from penstock._encoding.sound import AudioTrack, Sound
from penstock._encoding.timing import Origin
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.settings import DEFAULT_COLORS
from penstock._ffmpeg.program.process import FFmpegProcess
from penstock._formats import encoders
from penstock._formats.pixel_formats import has_alpha

if TYPE_CHECKING:
    from penstock._encoding.compare import Difference, Meant
    from penstock._encoding.pattern import Picture

# The share of clipped samples from which on a report warns. Chosen: models overshoot a little in a few places, and a
# wrong range clips many times that.
_NOTABLE_SHARE = 0.01
# Chosen: the samples of a few frames may be written before the frames.
_SOUND_LONGER_S = 0.25
EMPTY = "there is no video, because no frame was written"


@dataclass(frozen=True, slots=True)
class Findings:
    """What reading the file back has found.

    Attributes:
        is_read: whether the file is read back at all.
        identity: which file it was.
        sentences: how it differs from the plan, or why it can't be read.
    """

    is_read: bool = False
    identity: endpoints.Identity | None = None
    sentences: list[str] = field(default_factory=list)

    @classmethod
    def prepared(cls) -> Self:
        """None yet. Imports libav for them, which takes 0.1 s."""
        try:
            from penstock._encoding import compare  # noqa: F401
        except ImportError as error:
            return cls(sentences=[f"the file couldn't be verified, because PyAV can't be imported: {error}"])
        except RuntimeError:  # the interpreter is about to exit: threading takes no more callbacks
            return cls()
        except OSError as error:  # no descriptor is free
            return cls(sentences=[f"the file couldn't be verified: {error}"])
        return cls(is_read=True)


class Judge:
    """Says what the result of an encode lacks.

    Args:
        origin: where the frames come from.
        feed: what FFmpeg was fed.
    """

    def __init__(
        self,
        plan: EncodePlan,
        origin: Origin,
        feed: RawFeed,
        process: FFmpegProcess,
        destination: Destination,
    ) -> None:
        self._plan, self._origin, self._feed = plan, origin, feed
        self._process, self._destination = process, destination

    def read_back(self, findings: Findings) -> Findings:
        """The findings in the file that is there, if it is read and they are not of this file already."""
        file = self._destination.identity
        if not findings.is_read or (file is not None and findings.identity == file):
            return findings
        is_comparable = file is not None and listed.is_read(self._plan.output)
        return replace(
            findings,
            identity=file,
            sentences=[one.sentence for one in self.compare()] if is_comparable else [],
        )

    def compare(self, pictures: Sequence[Picture] = ()) -> list[Difference]:
        """How the file differs from what was encoded; frame by frame if these are its `pictures`."""
        from penstock._encoding.compare import compare  # libav, where a file is read back

        return compare(self._destination.url, self._meant(pictures))

    def _lost_colors_of_images(self) -> Iterable[str]:
        """Which of the colors that were asked for the first of numbered images doesn't have."""
        plan = self._plan
        if not plan.output.is_numbered or plan.request.colors == DEFAULT_COLORS:
            return ()
        from penstock._encoding.compare import lost_colors_of_image

        try:
            first = str(plan.output.path) % int(str(plan.options.get("start_number", 1)))
        except (TypeError, ValueError):  # a name with a time
            return ()
        return lost_colors_of_image(first, self._meant())

    def _meant(self, pictures: Sequence[Picture] = ()) -> Meant:
        from penstock._encoding.compare import Meant

        plan = self._plan
        return Meant(
            plan,
            frames=self._feed.submitted,
            first_s=self._feed.first_s,
            ends_s=self._feed.ends_s if plan.keeps_times else None,
            sounds=self._written_sounds if plan.keeps_sound else (),
            pictures=pictures,
            is_like=self._origin.is_like,
        )

    @property
    def _written_sounds(self) -> Sequence[Sound]:
        unused = bool(self._unused_input())
        return [one for one in self._plan.sounds if not (unused and isinstance(one.audio, AudioTrack))]

    @property
    def has_blended_frames(self) -> bool:
        """Whether FFmpeg has marked the frames of an animated WebP for blending, although each is a whole picture."""
        plan = self._plan
        has_parts = any(name.partition(":")[0] == "cr_threshold" for name in plan.options)
        pixel_format = plan.output_pixel_format
        return (
            encoders.known(plan.codec).blends
            and not plan.output.are_images
            and self._feed.submitted > 1
            and not has_parts
            and (pixel_format is None or has_alpha(pixel_format))
        )

    def lost(self) -> list[str]:
        """What the result lacks, although FFmpeg may have succeeded, in sentences."""
        # Without sound, a failure of FFmpeg is the cause of a missing picture, and its output says more.
        is_empty = not self._feed.submitted and (self._process.has_succeeded or bool(self._plan.sounds))
        failed = self._destination.failed(self._process, ignored=False)
        return (
            [EMPTY] * is_empty + self._destination.lost(self._feed.submitted) + failed + self._feed.failures
        )

    def _clipping(self) -> list[str]:
        """That the range of values may be wrong, because more than a few samples were outside."""
        value_range = self._plan.form.value_range
        if value_range is None or not self._feed.submitted:
            return []
        samples = self._feed.submitted * self._plan.frames.frame_bytes // self._plan.frames.sample_bytes
        if (share := self._feed.clipped_samples / samples) < _NOTABLE_SHARE:
            return []
        return [
            f"{share:.0%} of the samples were outside of value_range={value_range}, and were clipped. Pass the range "
            "that the frames have"
        ]

    def _loudness(self) -> list[str]:
        """That samples of audio may be clipped. Codecs of floats keep them."""
        track = self._plan.audio_input
        if track is None or not self._feed.samples or (track.codec or "").startswith("pcm_f"):
            return []
        share = self._feed.loud_samples / (self._feed.samples * track.channels)
        if share < _NOTABLE_SHARE:
            return []
        return [
            f"{share:.0%} of the audio samples were outside of -1 to 1, and most codecs clip these. Scale the samples"
        ]

    def _long_sound(self) -> list[str]:
        """That the samples make the file longer than its picture."""
        track = self._plan.audio_input
        sound_s = 0.0 if track is None else self._feed.samples / track.sample_rate
        video_s = float(self._feed.video_s)
        is_cut = "shortest" in self._plan.options or (track is not None and track.end == "video")
        if is_cut or sound_s <= video_s + _SOUND_LONGER_S:
            return []
        return [
            f"the audio lasts {sound_s:.3f} s, but the video {video_s:.3f} s, so players show the last frame longer. "
            "Pass end='video' to the AudioTrack"
        ]

    def _unused_input(self) -> list[str]:
        if self._plan.audio_input is None or self._feed.samples:
            return []
        return [
            "the video has no audio, because write_audio wasn't called. Call encoder.write_audio(samples), or leave "
            "the AudioTrack out"
        ]

    def missing(self, findings: Findings) -> list[str]:
        """What the result lacks although FFmpeg has succeeded, in sentences. A rehearsal has not shown it before."""
        ignored = self._destination.failed(self._process, ignored=True)
        missing = [
            *findings.sentences,
            *ignored,
            *self._unused_input(),
            *(self._lost_colors_of_images() if findings.is_read else ()),
            *self._origin.warnings(self._plan, float(self._feed.video_s)),
            *(*self._clipping(), *self._loudness(), *self._long_sound(), *self._feed.warnings),
        ]
        return [what for what in missing if what not in self._plan.warnings]
