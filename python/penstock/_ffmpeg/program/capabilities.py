"""Finds the FFmpeg program, and tells what it supports, from its own listings: encoders, containers, options.

Each listing is read once per program, when it is needed: it takes some 0.08 s, most of it for loading
libraries. If a program prints no listing, the listing is empty, nothing is refused because of that, and the
next call asks again.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from penstock._common.messages import argument
from penstock._ffmpeg.program.child import ProgramError, run
from penstock._formats import encoders as facts
from penstock._formats.codecs import ALIASES
from penstock._formats.pixel_formats import MEANT
from penstock.errors import DecoderError, EncoderError

_VARIABLE = "PENSTOCK_FFMPEG"
# That of imageio-ffmpeg 0.8, which the extra `ffmpeg` requires. Older ones crash on MPEG-TS, or are too old.
_OLDEST_IN_WHEEL = (9, 0)
_REMEDY = (
    "Run `pip install 'penstock-io[ffmpeg]'`, or install your system's FFmpeg (on Debian: `apt-get install ffmpeg`), "
    "or set PENSTOCK_FFMPEG to the path of the program"
)


def find_ffmpeg(ffmpeg: str | os.PathLike[str] | None = None) -> str:
    """Returns the path of the FFmpeg program: the one that you name, or the best that is installed.

    Penstock looks for it in this order: `ffmpeg` (a path, or a name on ``PATH``), the environment variable
    ``PENSTOCK_FFMPEG``, ``ffmpeg`` on ``PATH``, and the program in the ``imageio_ffmpeg`` wheel. If you name a program
    and it's missing, the call raises, and no other program replaces it.

    If you name none, a listed pair of container and codec is encoded by the wheel's program even if there is one on
    ``PATH``, because it starts sooner.

    Raises:
        EncoderError: if there is no FFmpeg. The message says how to get one.
    """
    named = os.environ.get(_VARIABLE) or None if ffmpeg is None else os.fspath(ffmpeg)
    found = shutil.which("ffmpeg") or _from_wheel() if named is None else shutil.which(named)
    if found is None:
        named_by = _VARIABLE if ffmpeg is None else "the argument `ffmpeg`"
        reason = "no FFmpeg was found on PATH, and no imageio-ffmpeg wheel"
        if named is not None:
            reason = f"{named_by} names {named!r}, which can't be run"
        raise EncoderError(f"{reason}. {_REMEDY}", reason=reason, advice=_REMEDY)
    return found


def find_decoding_ffmpeg(ffmpeg: str | os.PathLike[str] | None = None) -> str:
    """The same as `find_ffmpeg`, but raises a `DecoderError`."""
    try:
        return find_ffmpeg(ffmpeg)
    except EncoderError as error:
        raise DecoderError(str(error), reason=error.reason, advice=error.advice) from None


def quickest_ffmpeg() -> str | None:
    """The program in the ``imageio_ffmpeg`` wheel; None if a program is named, or if the wheel has none that runs here.

    Measured (2-core x86-64 VM, 2026-11-29): it starts in 21 ms of CPU time, and Debian's FFmpeg 5.1, which links some
    200 libraries, in 138 ms. To import the wheel's module, which starts the program, would take 25 ms more.
    """
    if os.environ.get(_VARIABLE) or os.environ.get("IMAGEIO_FFMPEG_EXE"):
        return None
    wheel = importlib.util.find_spec("imageio_ffmpeg")
    for folder in (wheel and wheel.submodule_search_locations) or ():
        for path in Path(folder, "binaries").glob("ffmpeg-*-v*"):
            numbers = tuple(map(int, re.findall(r"\d+", path.name.rpartition("-v")[2])))
            # It may need a newer libc, or a loader that this system keeps elsewhere, where the one on PATH runs.
            if numbers >= _OLDEST_IN_WHEEL and version(str(path)):
                return str(path)
    return None


def _from_wheel() -> str | None:
    try:
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # no wheel, or one without a program for this machine
        return None


Kind = Literal["video", "sound"]
# As in FFmpeg's listings.
_LETTERS: Mapping[Kind, str] = {"video": "V", "sound": "A"}

#: Guessed: how long to wait for a listing. FFmpeg answers within 0.1 s, unless caches are cold or the machine is busy.
PATIENCE_S = 5.0

#: The oldest FFmpeg that the tests are run with.
OLDEST = (5, 1)

# The first FFmpeg that crops as a container says (its Changelog).
_CROPPING = (7, 1)

# The end of the scale of H.264 and HEVC (8.7.2.1 of both): x264 and x265 take more for this. Other scales are longer.
_MOST_CRF = 51
# Options of other encoders with the same purpose, quality or the effort for it, and a usual value.
_INSTEAD: Mapping[str, Mapping[str, object]] = {
    "crf": {"cq": 23, "qp": 23, "quality": 80, "q:v": 3},
    "preset": {"deadline": "good", "cpu-used": 4, "speed": 4, "compression_level": 6},
}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of an encoder or a container.

    Attributes:
        kind: FFmpeg's name of its type: ``int``, ``float``, ``string``, ``flags``.
        limits: ``from -1 to 51``; empty if FFmpeg does not say.
        values: the named values.
    """

    kind: str = ""
    limits: str = ""
    values: tuple[str, ...] = ()


def encoders(program: str, kind: Kind = "video", *, with_experimental: bool = True) -> tuple[str, ...]:
    """The names of the encoders of `program`, of video or of sound."""
    return tuple(
        name
        for flags, name in _listed(program, "-encoders")
        if flags[0] == _LETTERS[kind] and (with_experimental or flags[3] != "X")
    )


def decoders(program: str) -> tuple[str, ...]:
    """The names of the video decoders of `program`."""
    return tuple(name for flags, name in _listed(program, "-decoders") if flags.startswith("V"))


def codecs(program: str, kind: Kind = "video") -> Mapping[str, Sequence[str]]:
    """The formats of video or sound that `program` encodes, such as h264, and its encoders, the preferred one first."""
    found: dict[str, Sequence[str]] = {}
    for flags, name, description in entries(stdout_of(program, "-codecs")):
        if flags[1:3] == f"E{_LETTERS[kind]}":
            named = re.search(r"\(encoders: (.*?) *\)", description)
            found[name] = named[1].split() if named else (name,)
    return found


def named_encoder(
    program: str,
    name: str,
    kind: Kind = "video",
    preferred: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> str:
    """The encoder that a name means: that of this name, or one of the format of this name (h264, H.265, mp3).

    As for FFmpeg itself, but an experimental encoder, which FFmpeg refuses, makes room for another one of its format.

    Args:
        name: of an encoder or a format. One that FFmpeg does not know is returned as it is.
        preferred: for formats, the encoders to take rather than those that FFmpeg prefers.
    """
    common = facts.common(is_audio=kind == "sound")
    if name in (*common, "copy") or name in (usable := encoders(program, kind, with_experimental=False)):
        return name
    lower = name.lower()
    form = ALIASES.get(lower, lower)
    ours, theirs = preferred.get(form, ()), codecs(program, kind).get(form, ())
    found = [one for one in (*ours, *theirs, lower) if one in usable]
    return next(iter((*found, *ours)), name)


def pixel_formats(program: str) -> Mapping[str, bool]:
    """The pixel formats of `program`, and whether each stands for memory of a device, which has no bytes to write."""
    lines = re.findall(r"^[I.][O.]([H.])[P.][B.] (\w+) +\d", stdout_of(program, "-pix_fmts"), re.MULTILINE)
    return {name: flag == "H" for flag, name in lines}


def made_pixel_formats(program: str) -> frozenset[str]:
    """The pixel formats that `program` makes of others. It takes more: findings/formats-that-no-filter-makes.sh."""
    return frozenset(re.findall(r"^[I.]O\.[P.][B.] (\w+) +\d", stdout_of(program, "-pix_fmts"), re.MULTILINE))


def encoder_options(program: str, codec: str) -> Mapping[str, Option]:
    """The options of an encoder by name, without the dash."""
    return _options(stdout_of(program, "-h", f"encoder={codec}"))


def encoder_pixel_formats(program: str, codec: str) -> tuple[str, ...]:
    """The pixel formats that an encoder takes; none if it takes any.

    Raises:
        EncoderError: there is no such encoder, or `program` did not answer in time.
    """
    listing = stdout_of(program, "-h", f"encoder={codec}")
    if not listing:
        check_codec(program, codec)
        raise EncoderError(
            f"{program} didn't list the pixel formats of {codec} within {PATIENCE_S:g} s. Penstock "
            f"chooses one of them for the video. Try again, or pass {argument('output_pixel_format', 'yuv420p')}"
        )
    found = re.search(r"Supported pixel formats: (.*)", listing)
    return tuple(found[1].split()) if found else ()


def is_lossless(program: str, codec: str) -> bool:
    """Whether an encoder, or a kind of video, is lossless whatever its options are.

    Raises:
        EncoderError: `program` did not tell.
    """
    lines = re.findall(r"^ .EV.([.L])S (\w+)(.*)", stdout_of(program, "-codecs"), re.MULTILINE)
    if not lines:
        raise EncoderError(
            f"{program} didn't list its codecs within {PATIENCE_S:g} s. Penstock chooses the video's pixel "
            f"format by them. Try again, or pass {argument('output_pixel_format', 'yuv420p')}"
        )
    return any(
        lossy == "." and codec in (kind, *re.sub(r".*\(encoders: (.*?)\).*|.*", r"\1", rest).split())
        for lossy, kind, rest in lines
    )


def muxer_options(program: str, container_format: str) -> Mapping[str, Option]:
    """The options of a container by name, without the dash."""
    return _options(stdout_of(program, "-h", f"muxer={container_format}"))


def filter_options(program: str, name: str) -> tuple[str, ...]:
    """The names of the options of a filter."""
    return tuple(
        re.findall(r"^ {2,3}-?(\w+) +<\w+> ", stdout_of(program, "-h", f"filter={name}"), re.MULTILINE)
    )


def global_options(program: str) -> Mapping[str, Option]:
    """The options of FFmpeg itself, and of every encoder and output, by name, without the dash."""
    own, *sections = re.split(r"^(?=\S.* AVOptions:$)", stdout_of(program, "-h", "full"), flags=re.MULTILINE)
    # The other sections describe single codecs, containers, filters and protocols.
    shared = [text for text in sections if text.startswith(("AVCodecContext ", "AVFormatContext "))]
    # The help omits these short forms.
    names = ["c", "codec", "f", "filter", *re.findall(r"^-(\w+)", own, re.MULTILINE)]
    return dict.fromkeys(names, Option()) | _options("\n".join(shared))


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """The three names of `names` that are most like `name`, the likeliest first."""
    names = list(dict.fromkeys(names))
    alike = sorted(names, key=lambda known: _likeness(name, known), reverse=True)
    close = [known for known in alike if _likeness(name, known)[0] >= 0.7]
    # Short names such as "x264", "vp9" and "nvenc" resemble no full name, but are parts of some.
    parts = sorted((known for known in names if len(name) > 2 and name.lower() in known.lower()), key=len)
    meant = [known for known in (MEANT.get(name.lower()),) if known in names]
    return list(dict.fromkeys([*meant, *close, *parts]))[:3]


def _likeness(name: str, known: str) -> tuple[float, int]:
    """How alike two names are. Among equals, the one with the same letters is nearer: libx264 to libx246."""
    import difflib  # only for messages

    name, known = name.lower(), known.lower()
    return difflib.SequenceMatcher(None, name, known).ratio(), (Counter(name) & Counter(known)).total()


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The question "Did you mean …?" after a space, with the nearest names; empty if none is near."""
    found = nearest(name, names)
    return f" Did you mean {' or '.join(map(repr, found))}?" if found else ""


def check_codec(program: str, codec: str) -> None:
    """Checks that `program` has the video encoder `codec`, which is looked up unless it is a common one."""
    if codec not in facts.common():
        _look_up(program, codec)


def _look_up(program: str, codec: str) -> None:
    if (known := encoders(program)) and codec not in (*known, *codecs(program), "copy"):
        raise EncoderError(unknown_codec(program, codec))


def audio_encoder(program: str, codec: str) -> str:
    """The sound encoder that `codec` names. It is looked up unless it is a common one."""
    found = named_encoder(program, codec, "sound")
    if (
        found not in facts.common(is_audio=True)
        and (known := encoders(program, "sound"))
        and found not in known
    ):
        raise EncoderError(unknown_codec(program, codec, "sound"))
    return found


def check_option(program: str, codec: str, name: str) -> None:
    """Checks that `codec` has the option `name`, which is "crf" or "preset"."""
    known = facts.known(codec)
    if (known.has_crf if name == "crf" else known.has_preset) or not stdout_of(
        program, "-h", f"encoder={codec}"
    ):
        return
    if name in (options := encoder_options(program, codec)):
        return
    _look_up(program, codec)
    others = _INSTEAD[name]
    instead = next((other for other in others if other in options), "q:v" if name == "crf" else None)
    hint = f". Pass {argument(f'options.{instead}', others[instead])} instead" if instead else ""
    raise ValueError(f"{codec} has no {name}{hint}")


def check_crf(program: str, codec: str, crf: float) -> None:
    """Checks that `crf` is on the codec's scale. FFmpeg says which that is, unless it passes on any number."""
    most = _MOST_CRF
    if crf > most:
        _look_up(program, codec)
        option = encoder_options(program, codec).get("crf", Option())
        limit = option.limits.rpartition(" ")[2]
        most = int(limit) if limit.isdecimal() else most
    if not 0 <= crf <= most:
        raise ValueError(f"the crf of {codec} must be 0 to {most}, not {crf}. Pass {argument('crf', 23)}")


def unknown_codec(program: str, codec: str, kind: Kind = "video") -> str:
    """The message that `program` has no encoder `codec` of that kind, with the nearest names."""
    of_video = kind == "video"
    known = (*encoders(program, kind), *codecs(program, kind))
    near = did_you_mean(codec, known)
    common = facts.common(is_audio=not of_video)
    names = ", ".join(name for name in common if name in known and not facts.needs_hardware(name))
    has = f" It has {names}." if names else ""
    lacks = "has no video encoder" if of_video else "has no audio encoder"
    return f"{program} {lacks} {codec!r}.{near}{has} `ffmpeg -encoders` lists all"


def version(program: str) -> str:
    """The version of `program`, such as ``7.1.1-1+deb13u1``; empty if it does not say."""
    found = re.match(r"ffmpeg version (\S+)", stdout_of(program, "-version"))
    return found[1] if found else ""


def crops_by_container(program: str) -> bool:
    """Whether `program` crops pictures as their container says; False for a build without a version."""
    return version_numbers(program) >= _CROPPING


def version_numbers(program: str) -> tuple[int, ...]:
    """The first two numbers of the version; none for a build without a version."""
    found = re.match(r"n?(\d+)\.(\d+)", version(program))
    return (int(found[1]), int(found[2])) if found else ()


def too_old(program: str) -> str | None:
    """What to do about a `program` older than `OLDEST`; None if it is not, or is a build without a version."""
    found = version_numbers(program)
    if not found or found >= OLDEST:
        return None
    found_version, oldest = version(program).removeprefix("n"), ".".join(map(str, OLDEST))
    return (
        f"{program} is FFmpeg {found_version}, but Penstock needs FFmpeg {oldest} or newer. Install a newer FFmpeg, or "
        "set PENSTOCK_FFMPEG to the path of one"
    )


def stdout_of(program: str, *arguments: str) -> str:
    """FFmpeg's standard output, cached; empty if FFmpeg cannot be run, fails, or does not end in time."""
    try:
        return _stdout_of(program, *arguments)
    except ProgramError:
        return ""


@functools.lru_cache(maxsize=64)
def _stdout_of(program: str, *arguments: str) -> str:
    """The same, but raises failures, which are not cached: the next call may be in time."""
    return run((program, "-hide_banner", "-loglevel", "error", *arguments), PATIENCE_S).text.replace(
        "\r\n", "\n"
    )


def entries(listing: str) -> list[tuple[str, str, str]]:
    """The flags, names and descriptions in a listing of FFmpeg, after its legend, which ends with dashes."""
    _, _, lines = re.sub(r"(?m)^ -+$", "\0", listing, count=1).partition("\0")
    return re.findall(r"^ ([A-Za-z. ]+?) +(\S+) +(.*?) *$", lines, re.MULTILINE)


def _listed(program: str, listing: str) -> list[tuple[str, str]]:
    """The flags and names in a listing of FFmpeg."""
    return [(flags, name) for flags, name, _ in entries(stdout_of(program, listing))]


def _options(text: str) -> dict[str, Option]:
    """The options in FFmpeg's help on a codec or a container: one line each, and one for each named value."""
    found: dict[str, Option] = {}
    name = ""
    for line in text.splitlines():
        if option := re.match(r"  -(\S+) +<(\w+)> +E", line):
            name = option[1]
            limits = re.search(r"\((from \S+ to \S+)\)", line)
            found[name] = Option(option[2], limits[1] if limits else "")
        elif (value := re.match(r"     (\S+) +(?:-?\d+ +)?E", line)) and name:
            found[name] = replace(found[name], values=(*found[name].values, value[1]))
        else:
            name = ""
    return found
