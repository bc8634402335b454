"""The rehearsal of an encode: four frames by the user's own plan, into a file that is read back.

It answers what no table could: which encoder works in which container, with which options, in this FFmpeg. A plan that
`listed` knows needs none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from penstock._common.deadline import Deadline
from penstock._common.log import logger
from penstock._common.messages import argument, silenced
from penstock._encoding import encoders
from penstock._encoding.intake import Intake
from penstock._encoding.listed import can_be_tried, is_listed, is_listed_sound
from penstock._encoding.output_pixel_format import AUTO
from penstock._encoding.plan import Beside, EncodePlan, plan
from penstock._encoding.request import Request
from penstock._encoding.session import EncodeSession
from penstock._encoding.sound import AudioFile, AudioTrack, Sound, zeros_arguments
from penstock._encoding.timing import Origin
from penstock._ffmpeg.command.arguments import SAMPLES
from penstock._ffmpeg.command.settings import DEFAULT_COLORS
from penstock._ffmpeg.program import capabilities
from penstock._platform.forks import at_fork
from penstock.errors import EncoderError, FFmpegError, StalledError

if TYPE_CHECKING:
    from penstock._encoding.compare import Difference
    from penstock._encoding.sound import InputSampleType

Size = tuple[int, int]

# Measured (FFmpeg 5.1, 2-core x86-64 VM, 2026-11-27): software encoders take 0.1 to 0.4 s for so small a picture, and
# for 1080p 0.5 to 7.6 s.
_SMALL = 64
# Sizes with the same rest are padded, and their chroma is subsampled, in the same way.
_ALIGNED = 4
# Guessed: a driver takes up to 2 s to load when its files are not cached. FFmpeg 5.1 hangs with SVT-AV1 in MPEG-TS.
_PATIENCE_S = 10.0
# Chosen: a trial on a busy machine, whose FFmpeg shows signs of life, may take as long as nobody would wait for twice.
_MOST_S = 60.0
# A sound that begins so late is not in four frames.
_LATE_S = 0.1
# What may make FFmpeg fail and has a remedy, and what does not depend on the size of the frames.
_FAILING = ("samples", "sound")
_OF_ANY_SIZE = ("colors", "sound", "times")
# FFmpeg's warning of an option that the encoder does not have.
_UNUSED = re.compile(r"AVOption (\S+) .* has not been used for any stream")
# What FFmpeg's messages begin with.
_COMPONENTS = re.compile(r"(?:\[[^\]]+\] )*")
# What FFmpeg's messages call the file of a trial.
_TRIAL_NAME = re.compile(r"(file:)?/\S*/penstock-\w+/rehearsal(\.\w+)*")
# Where the file of a failed trial was, which is removed.
_TRIAL_LEFT = re.compile(r"\. FFmpeg's unfinished file is [^\n]*")
# The container of a trial where the user's is several files, a URL, or none that libav reads.
_READABLE = ".mkv"
# What FFmpeg decodes a sound to, as the samples of an `AudioTrack`.
_DTYPES = {
    f"pcm_{name}": cast("InputSampleType", "float32" if dtype == "float64" else dtype)
    for dtype, name in SAMPLES.items()
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rehearsal has shown.

    Attributes:
        failure: the error of FFmpeg; None if it has encoded.
        differences: how the file differs from what was meant.
        unused: the names of options that the encoder does not have.
        unsure: why nobody can tell, in a sentence; None if it was compared.
    """

    failure: FFmpegError | None = None
    differences: tuple[Difference, ...] = ()
    unused: tuple[str, ...] = ()
    unsure: str | None = None

    @property
    def is_clean(self) -> bool:
        """Whether the file is what was meant."""
        return self.failure is None and not self.differences and self.unsure is None

    def lacks(self, kind: str) -> bool:
        """Whether the file differs in that, or there is none and that may be why."""
        may_fail = self.failure is not None and kind in _FAILING
        return may_fail or any(one.kind == kind for one in self.differences)


@dataclass(frozen=True, slots=True)
class _Remedy:
    """Another plan that may mend what a file lacks, where the user has not decided it; None if there is none."""

    kind: str
    other: Callable[[EncodePlan, Size], EncodePlan | None]


def working_plan(
    request: Request,
    size: Size | None,
    timeout: float | None = None,
    beside: Beside | None = None,
    *,
    is_like: bool = False,
) -> EncodePlan:
    """The plan of an encode that is known to work, or was tried.

    Args:
        size: width and height in pixels; None only checks the request.
        timeout: seconds to wait for trials; None for any.
        beside: as for `plan`.
        is_like: the colors and the time code are those of a source, and nobody has asked for them.

    Raises:
        EncoderError: FFmpeg can't encode it, and says why.
        ValueError: the file would not have what the caller asked for.
        StalledError: the trials took longer than `timeout`.
    """
    deadline, skipped = Deadline(timeout), list[str]()
    made = plan(request, size, beside)
    if size is None:
        may_change = request.codec == AUTO and request.quality == encoders.LOSSLESS
        return (
            replace(made, warnings=()) if may_change else made
        )  # those of FFV1, which it may become, differ
    for codec in encoders.hardware_encoders(request.codec):
        found = _by_hardware(replace(request, codec=codec), size, deadline, made.beside)
        if isinstance(found, EncodePlan):
            return _chosen(found, skipped)
        skipped.append(found)
    if _is_rehearsed(made):
        made = _tried(made, size, deadline, is_like=is_like)
    return _chosen(made, skipped) if skipped else made


def needs_trial(made: EncodePlan) -> bool:
    """Whether `working_plan` tries the plan, which takes a while."""
    return bool(encoders.hardware_encoders(made.request.codec)) or _is_rehearsed(made)


def _is_rehearsed(made: EncodePlan) -> bool:
    return made.request.settings._knobs.rehearse and not is_listed(made) and can_be_tried(made)


def _chosen(made: EncodePlan, skipped: list[str]) -> EncodePlan:
    logger.info("the encoder is %s", "; ".join([made.codec, *skipped]))
    return replace(made, skipped_encoders=tuple(skipped))


def _by_hardware(request: Request, size: Size, deadline: Deadline, beside: Beside) -> EncodePlan | str:
    """The plan by the encoder of hardware that `request` names, or why it is not suitable, in a sentence."""
    codec = request.codec
    if codec not in capabilities.encoders(capabilities.find_ffmpeg(request.settings.ffmpeg)):
        return f"{codec} is not in this FFmpeg"
    try:
        made = plan(request, size, beside)
    except (ValueError, EncoderError) as error:
        # Keep the reason only: the rest advises a user who named the encoder.
        return re.split("[.:] ", str(error), maxsplit=1)[0]
    verdict = _verdict_at(made, deadline, size)
    why = [
        *(f"it has no option {name}" for name in verdict.unused),
        *(one.sentence for one in verdict.differences if one.kind != "sound"),
    ]
    if verdict.failure is not None:
        # For a wrong value of an option, FFmpeg explains it on the next line.
        said = [line for line in verdict.failure.stderr.splitlines() if "[Eval]" not in line]
        said = said or [str(verdict.failure)]
        why.append(_COMPONENTS.sub("", said[0], count=1))
    why += filter(None, [verdict.unsure])
    return f"{codec}: {why[0]}" if why else made


def _tried(made: EncodePlan, size: Size, deadline: Deadline, *, is_like: bool) -> EncodePlan:
    """The plan, once a rehearsal has shown that it works, or another one that does."""
    made = _without_lost_reordering(_without_late_copies(made, size), size, deadline)
    verdict = _verdict_at(made, deadline, _small(size), size)
    for remedy in _REMEDIES:
        other = None
        if verdict.lacks(remedy.kind):
            with suppress(ValueError):  # the frames contradict it
                other = remedy.other(made, size)
        if other is not None:
            mended = _verdict_at(other, deadline, _small(size), size)
            if not mended.lacks(remedy.kind):
                _check_free(made, other)
                made, verdict = other, mended
    _check(made, verdict, is_like=is_like)
    warnings = [*made.warnings, *(one.sentence for one in verdict.differences)]
    return replace(made, warnings=(*warnings, *filter(None, [verdict.unsure])))


def _without_lost_reordering(made: EncodePlan, size: Size, deadline: Deadline) -> EncodePlan:
    """The plan without reordered frames, if the picture alone loses its times: a sound moves the first frame, too."""
    if not made.sounds or (other := _without_reordering(made, size)) is None:
        return made
    alone = plan(replace(made.request, audio=None), size, made.beside._replace(sounds=()))
    loses_times = not is_listed(alone) and _verdict_at(alone, deadline, _small(size), size).lacks("times")
    return other if loses_times else made


def _without_late_copies(made: EncodePlan, size: Size) -> EncodePlan:
    """The plan that encodes sounds which begin after the rehearsal, unless a copy is asked for, or known to work."""
    container = made.output.facts

    def is_unsure(one: Sound) -> bool:
        may_encode = one.begins_s >= _LATE_S and one.audio.codec is None
        return may_encode and not is_listed_sound(one, container)

    sounds = tuple(one.encoded if one.encoded and is_unsure(one) else one for one in made.sounds)
    return made if sounds == made.sounds else plan(made.request, size, made.beside._replace(sounds=sounds))


def _check_free(made: EncodePlan, other: EncodePlan) -> None:
    """Checks that a plan that works does not encode what was to be copied."""
    for asked, sound in zip(made.sounds, other.sounds, strict=True):
        if asked.is_copied and not sound.is_copied and asked.audio.codec == "copy":
            raise ValueError(
                f"the {asked.codec} audio can't be copied to {made.output.container_name}. Pass another codec than "
                "'copy', or leave codec out"
            )


def _check(made: EncodePlan, verdict: Verdict, *, is_like: bool) -> None:
    """Raises what an encode must not be begun with."""
    if verdict.failure is not None:
        raise _renamed(verdict.failure, made.output.name)
    if made.request.quality == encoders.LOSSLESS and verdict.unsure is not None:
        raise ValueError(f"{argument('quality', encoders.LOSSLESS)} can't be verified: {verdict.unsure}")
    refused = {"picture", "count", "samples", "heard"}
    if made.rate is None:
        refused.add("times")
    if made.request.colors != DEFAULT_COLORS and not is_like:
        refused.add("colors")
    if not is_like:
        refused.add("timecode")
    for one in verdict.differences:
        if one.kind in refused:
            raise ValueError(one.sentence)


def _renamed(failure: FFmpegError, name: str) -> FFmpegError:
    """The failure with the name of the user's output in place of the trial's, whose frames are not the user's."""
    message, reason, stderr = (
        _TRIAL_NAME.sub(lambda _: name, _TRIAL_LEFT.sub("", text)).replace(
            "FFmpeg encoded", "In a trial, FFmpeg encoded", 1
        )
        for text in (str(failure), failure.reason, failure.stderr)
    )
    return type(failure)(
        message,
        reason=reason,
        returncode=failure.returncode,
        command=failure.command,
        stderr=stderr,
        frames=failure.frames,
        advice=failure.advice,
    )


def _without_reordering(made: EncodePlan, size: Size) -> EncodePlan | None:
    """Some containers hold only the times of decoding, which differ from those of frames that are reordered."""
    if "bf" in made.options:
        return None
    return plan(replace(made.request, options={"bf": 0, **(made.request.options or {})}), size, made.beside)


def _with_assumed_colors(made: EncodePlan, size: Size) -> EncodePlan | None:
    """What readers take a video without tags for."""
    colors = made.request.colors
    if not colors.matrix == colors.range == "auto":
        return None
    return plan(
        replace(made.request, colors=replace(colors, matrix="bt601", range="limited")), size, made.beside
    )


def _with_encoded_sound(made: EncodePlan, size: Size) -> EncodePlan | None:
    """Sounds that may be copied or encoded."""
    sounds = tuple(one.encoded or one for one in made.sounds)
    return None if sounds == made.sounds else plan(made.request, size, made.beside._replace(sounds=sounds))


def _with_back_for_side(made: EncodePlan, size: Size) -> EncodePlan | None:
    """Surround as Opus names it: FFmpeg's libopus refuses the 5.1(side) of AC-3 and DTS, and takes 5.1."""
    sounds = tuple(one.encoded or one for one in made.sounds)
    sounds = tuple(replace(one, layout=(one.layout or "").removesuffix("(side)") or None) for one in sounds)
    return None if sounds == made.sounds else plan(made.request, size, made.beside._replace(sounds=sounds))


def _with_ffv1(made: EncodePlan, size: Size) -> EncodePlan | None:
    """FFV1 keeps the samples of most pixel formats."""
    is_free = made.request.codec == AUTO and made.request.quality == encoders.LOSSLESS
    # Lossless for more formats than any other.
    return plan(replace(made.request, codec="ffv1"), size, made.beside) if is_free else None


# Each is tried on the plan that those before it have mended.
_REMEDIES = (
    _Remedy("samples", _with_ffv1),
    _Remedy("sound", _with_encoded_sound),
    _Remedy("sound", _with_back_for_side),
    _Remedy("heard", _with_encoded_sound),
    _Remedy("times", _without_reordering),
    _Remedy("colors", _with_assumed_colors),
)

_verdicts: dict[tuple[object, ...], Verdict] = {}
# Those that are going on, or ended after their callers' time was over. A fork has not their threads.
_trials: dict[tuple[object, ...], Future[Verdict]] = {}
at_fork(after_in_child=_trials.clear)


def _verdict_at(made: EncodePlan, deadline: Deadline, *sizes: Size) -> Verdict:
    """The verdict on a plan, by rehearsals of these sizes until one succeeds, if there was none in this process."""
    sounds = [
        (one.encoder, one.codec, one.sample_rate, one.channels, one.input_arguments) for one in made.sounds
    ]
    output = (made.output.container_format, made.output.ending, made.output.sink is None)
    request = made.request
    asked = (request.quality, request.vflip, request.odd_size, made.pixel_format, made.output_pixel_format)
    key = (made.program, sizes, made.rate, *asked, *output, *made.arguments[:-1], *sounds)
    if (known := _verdicts.get(key)) is not None:
        return known
    trial = _trials.get(key)
    if trial is None:
        trial = Future()
        # In this context, which says how messages name options.
        work = partial(copy_context().run, _try, trial, made, dict.fromkeys(sizes))
        Thread(target=work, name="penstock-rehearsal").start()
        _trials[key] = trial  # now, so that nobody waits for a thread that the system has refused
    try:
        verdict = trial.result(deadline.left_s())
    except TimeoutError:
        raise StalledError(
            f"{made.codec} in {made.output.container_name} is still being tried. No frame is queued. Call again",
            deadline.timeout or 0.0,
        ) from None
    finally:
        # One that goes on stays, for the next call to wait for.
        if trial.done():
            _trials.pop(key, None)
    logger.info("rehearsed %s in %s: %s", made.codec, made.output.container_name, verdict)
    # A failure may pass, as that of a full disk; but hardware that is not there stays away.
    if len(sizes) == 1 or (verdict.failure is None and verdict.unsure is None):
        _verdicts[key] = verdict
    return verdict


def _try(trial: Future[Verdict], made: EncodePlan, sizes: Iterable[Size]) -> None:
    """Rehearses at these sizes until one succeeds. On a thread, so that it goes on when a caller's time is over."""
    try:
        for size in sizes:  # some encoders need more pixels than few
            verdict = rehearse(made, size)
            depends_on_size = any(one.kind not in _OF_ANY_SIZE for one in verdict.differences)
            if verdict.failure is None and not depends_on_size:
                break
    # Whoever waits for the trial gets it.
    except BaseException as error:
        trial.set_exception(error)
    else:
        trial.set_result(verdict)


def rehearse(made: EncodePlan, size: Size) -> Verdict:
    """Encodes four frames of `size`, and compares them with what is read back."""
    import shutil  # where they are needed
    import tempfile

    try:
        # No TemporaryDirectory, which a forked child would remove when it ends.
        folder = tempfile.mkdtemp(prefix="penstock-")
    except OSError as error:
        return Verdict(unsure=f"the encode couldn't be tried before its first frame: {error}")
    try:
        with silenced():
            return _compared(_trial(made, Path(folder), size), Deadline(_MOST_S))
    except EncoderError as failure:
        return Verdict(failure.with_traceback(None))  # whose frames hold the pictures
    except StalledError as stalled:
        return Verdict(unsure=f"the encode couldn't be tried before its first frame: {stalled}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _small(size: Size) -> Size:
    width, height = (_SMALL + side % _ALIGNED for side in size)
    return width, height


def _trial(made: EncodePlan, folder: Path, size: Size) -> EncodePlan:
    """The plan of the same encode into a file in `folder`."""
    request, options = made.request, dict(made.request.options or {})
    ending = made.output.ending
    if not can_be_tried(made):
        ending, _ = _READABLE, options.pop("f", None)
    path = folder / f"rehearsal{ending}"
    request = replace(request, output=path, options=options, value_range=None, channels_first=False)
    if request.quality == encoders.LOSSLESS:  # samples are compared as they are
        request, size = (
            replace(request, vflip=False),
            (size[0] // _ALIGNED * _ALIGNED, size[1] // _ALIGNED * _ALIGNED),
        )
    if made.colors is not None:  # those of "auto" depend on the size
        resolved: dict[str, Any] = {"matrix": made.colors.matrix, "range": made.colors.range}
        request = replace(request, colors=replace(request.colors, **resolved))
    sounds = tuple(_cut(one) for one in made.sounds if one.begins_s < _LATE_S)
    if len(sounds) == 1:  # there is one `AudioTrack` at most
        sounds = (_as_tone(sounds[0]),)
    return plan(request, size, made.beside._replace(sounds=sounds))


def _as_tone(sound: Sound) -> Sound:
    """An encoded sound as samples that are known and not silent; a copy as it is."""
    audio, dtype = sound.audio, _DTYPES.get(sound.packet_codec)
    if sound.is_copied or dtype is None or isinstance(audio, AudioTrack):
        return sound
    track = AudioTrack(
        sound.sample_rate, sound.channels, dtype, audio.codec, language=audio.language, title=audio.title
    )
    zeros = zeros_arguments(track)
    return replace(sound, audio=track, input_arguments=zeros, index=0, packet_codec="copy")


def _cut(sound: Sound) -> Sound:
    """The sound, as long as the picture."""
    return (
        replace(sound, audio=replace(sound.audio, end="video"))
        if isinstance(sound.audio, AudioFile)
        else sound
    )


def _compared(made: EncodePlan, patience: Deadline) -> Verdict:
    """Encodes by that plan, and compares."""
    from penstock._encoding.pattern import pictures_for, tone  # libav, where it is needed

    pictures = []
    session = EncodeSession(made, title="<rehearsal>", reporter=None, origin=Origin())
    intake = Intake(session)
    try:
        session.start()
        session.limit_stalls(_PATIENCE_S)
        for picture in pictures_for(made):  # made while FFmpeg starts, or fails
            pictures.append(picture)
            item = intake.take(picture.samples, picture.time_s if made.is_timed else None)
            intake.queue(item, patience.left_s())
        if (track := made.audio_input) is not None:
            intake.queue(intake.take_samples(tone(track)), patience.left_s())
        report = session.close(patience.left_s())
    finally:
        session.abort()
    found = session.judge.compare(pictures)
    unused = (_UNUSED.search(line) for line in report.warnings)
    return Verdict(
        # Labels may be for what comes after four frames.
        differences=tuple(one for one in found if one.kind not in ("labels", "unverified")),
        unused=tuple(one[1] for one in unused if one),
        unsure=next((one.sentence for one in found if one.kind == "unverified"), None),
    )
