"""What to do about an FFmpeg that failed, by its messages.

Advice stands beside FFmpeg's own words and does not replace them; a message without a known pattern has none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from penstock._common.messages import argument
from penstock._encoding.encoders import default_encoder
from penstock._encoding.output_pixel_format import AUTO
from penstock._encoding.plan import EncodePlan
from penstock._ffmpeg.command import containers
from penstock._ffmpeg.command.arguments import FILTER_OPTIONS
from penstock._ffmpeg.program import capabilities
from penstock._ffmpeg.program.capabilities import Option, did_you_mean
from penstock._ffmpeg.program.messages import FAILED_OUTPUT, without_colors

# From x264_preset_names and x264_tune_names in x264.h, which x265 shares; FFmpeg's help does not list them.
_X264_VALUES = {
    "preset": (
        *("ultrafast", "superfast", "veryfast", "faster", "fast", "medium"),
        *("slow", "slower", "veryslow", "placebo"),
    ),
    "tune": ("film", "animation", "grain", "stillimage", "psnr", "ssim", "fastdecode", "zerolatency"),
}
# Options that drop or repeat frames.
_COUNT_OPTIONS = ("fpsmax", "t", "to", "ss", "frames", "vframes", "fps_mode", "vsync")
# Guessed: a line with more names than these is too long to read.
_NAMES_IN_A_LINE = 12


def explain(plan: EncodePlan, stderr: str) -> str | None:
    """What the user can do about FFmpeg's failure; None if the failure is not known.

    Runs FFmpeg for its listings, which takes some tenths of a second.

    Args:
        stderr: FFmpeg's output, and behind it the number of frames that FFmpeg encoded and how it ended.
    """
    stderr = without_colors(stderr)
    for pattern, advise in _ADVICE:
        if (found := re.search(pattern, stderr)) and (advice := advise(plan, found)):
            return advice
    return None


def _codec(plan: EncodePlan, found: re.Match[str]) -> str | None:
    values = {
        name: value if isinstance(value, list | tuple) else [value] for name, value in plan.options.items()
    }
    given = " ".join(name for name, of_it in values.items() if found[1] in of_it)
    if re.search(r":s|scodec", given):
        return None
    of_sounds = [sound.encoder for sound in plan.sounds]
    is_sound = found[1] in of_sounds or re.search(r":a|acodec", given)
    return capabilities.unknown_codec(plan.program, found[1], "sound" if is_sound else "video")


def _option(plan: EncodePlan, found: re.Match[str]) -> str:
    name = found[1].partition(":")[0]  # "crf:v" is for the video
    near = did_you_mean(name, _known_options(plan))
    return f"neither FFmpeg nor {plan.codec} has an option {name!r}{near and f'.{near}'}"


def _value(plan: EncodePlan, found: re.Match[str]) -> str:
    name, value = found[1], found[2]
    option = _known_options(plan).get(name, Option())
    near = did_you_mean(value, option.values)
    # FFmpeg calls the user's option "b:v" "b".
    name = next((given for given in plan.options if given.partition(":")[0] == name), name)
    more = f"{near}{_takes(option)}"
    return f"{argument(f'options.{name}', value)} is not valid{more and f'.{more}'}"


def _takes(option: Option) -> str:
    number = f"{option.kind} {option.limits}" if option.limits and "MAX" not in option.limits else option.kind
    names = ", ".join(option.values[:_NAMES_IN_A_LINE])
    more = ", and others" * (len(option.values) > _NAMES_IN_A_LINE)
    kinds = [kind for kind in (number, names and f"one of {names}{more}") if kind]
    return f" It accepts {' or '.join(kinds)}" if kinds else ""


def _preset_or_tune(plan: EncodePlan, found: re.Match[str]) -> str:
    preset, tune = found[1], found[2]
    # FFmpeg prints both, and one of them is wrong; "(null)" stands for one that was not given.
    wrong = "tune" if preset in ("(null)", *_X264_VALUES["preset"]) else "preset"
    value = tune if wrong == "tune" else preset
    known = _X264_VALUES[wrong]
    return f"{plan.codec} has no {wrong} {value!r}.{did_you_mean(value, known)} It has {', '.join(known)}"


def _no_encoder(plan: EncodePlan, found: re.Match[str]) -> str:
    return (
        f"{found[1]} can't hold audio, or FFmpeg has no default audio codec for it. Leave audio out, write another "
        "container, or pass AudioFile(path, codec='aac') or AudioTrack(48000, 2, codec='aac')"
    )


def _container(plan: EncodePlan, found: re.Match[str]) -> str:
    near = did_you_mean(found[1], capabilities.muxers(plan.program))
    known = containers.of_ending(f".{found[1]}")
    named = known and known.name
    by_extension = f" {named!r} is FFmpeg's name for it." if named not in (None, found[1]) else near
    return f"there is no container format {found[1]!r}.{by_extension} `ffmpeg -muxers` lists them"


def _no_container(plan: EncodePlan, found: re.Match[str]) -> str:
    for name, value in plan.options.items():
        if str(value) == found[1]:  # FFmpeg takes it for an output
            flag = argument(f"options.{name}", None)
            return (
                f"{argument(f'options.{name}', value)} has a value, but FFmpeg's option has none. Pass {flag}"
            )
    remedy = f"End it with .mp4 or .mkv, or pass {argument('options.f', 'matroska')}"
    return f"the name {plan.output.name!r} has no ending that FFmpeg knows. {remedy}"


def _not_seekable(plan: EncodePlan, found: re.Match[str]) -> str:
    return (
        f"{found[1]} can't be written to a stream, because its beginning is written last. Pass "
        f"{argument('crash_safe', True)}, or {argument('options.f', 'matroska')}, or {argument('options.f', 'mpegts')}"
    )


def _experimental(plan: EncodePlan, found: re.Match[str]) -> str:
    encoder = found[1] or found[2] or plan.codec
    return f"{encoder} is experimental here. Pass {argument('options.strict', 'experimental')} to use it"


def _no_timecode(plan: EncodePlan, found: re.Match[str]) -> str:
    return (
        f"{plan.output.container_name} holds no time code at so many frames per second. Write mkv, or pass "
        f"{argument('timecode', None)}"
    )


def _frame_count(plan: EncodePlan, found: re.Match[str]) -> str | None:
    options = {name: name.partition(":")[0] for name in plan.options}
    causes = [name for name, plain in options.items() if plain in _COUNT_OPTIONS]
    causes = causes or [name for name in options if name in FILTER_OPTIONS]  # most filters keep the number
    if found[1] == found[2] or not causes:
        return None
    given = " and ".join(argument(f"options.{name}", plan.options[name]) for name in causes)
    return (
        f"{given} changes the number of frames. Leave it out, set the rate with {argument('fps', 30)}, and write "
        "the frames that the video should have"
    )


def _other_codec(plan: EncodePlan, found: re.Match[str]) -> str:
    audio = re.search(r"tag for codec (\w+) in stream #[1-9]", found.string)
    if audio is not None:
        return f"this container can't hold {audio[1]} audio. Leave its codec out, or write .mkv, which holds most"
    remedy = "Write .mkv or .mov, which hold most, or use another codec"
    if plan.request.codec != AUTO and not plan.output.are_images:
        default = default_encoder(plan.output, plan.program)
        if default != plan.codec:
            remedy = f"Leave codec out to get {default}, or write .mkv or .mov, which hold most"
    return f"this container can't hold {plan.codec} video. {remedy}"


def _odd_size(plan: EncodePlan, found: re.Match[str]) -> str:
    return (
        f"{plan.codec} needs an even width and height. Pass {argument('odd_size', 'pad')}, or "
        f"{argument('output_pixel_format', 'yuv444p')}"
    )


def _pixel_format(plan: EncodePlan, found: re.Match[str]) -> str:
    near = did_you_mean(found[1], capabilities.pixel_formats(plan.program))
    return f"there is no output_pixel_format {found[1]!r}.{near} `ffmpeg -pix_fmts` lists them"


def _filter(plan: EncodePlan, found: re.Match[str]) -> str:
    return _no_filter(found[1], capabilities.filters(plan.program))


def _no_filter(name: str, known: Iterable[str]) -> str:
    near = did_you_mean(name, known)
    return f"FFmpeg has no filter {name!r}{near and f'.{near}'}"


def _filter_text(plan: EncodePlan, found: re.Match[str]) -> str:
    known = capabilities.filters(plan.program)
    for part in re.split(r"[,;]", found[1]):
        name = re.sub(r"^\s*(?:\[\w+\])*", "", part).partition("=")[0].partition("@")[0].strip()
        if known and name and name not in known:
            return _no_filter(name, known)
    return f"a filter in {found[1]!r} has a syntax error. `ffmpeg -h filter=NAME` shows its options"


def _filter_option(plan: EncodePlan, found: re.Match[str]) -> str:
    # FFmpeg prints the filter or the option first.
    name, option = (found[1], found[2]) if found[1] else (found[4], found[3])
    near = did_you_mean(option, capabilities.filter_options(plan.program, name))
    return f"the filter {name!r} has no option {option!r}{near and f'.{near}'}"


def _one_picture(plan: EncodePlan, found: re.Match[str]) -> str:
    output = plan.output
    numbered = f"{output.name.removesuffix(output.ending)}%05d{output.ending}"
    return f"{output.name} holds one picture. Use {numbered} for an image sequence, or .apng or .webp for an animation"


def _times_go_back(plan: EncodePlan, found: re.Match[str]) -> str | None:
    if not plan.sounds:
        return None
    return (
        "the audio's timestamps go backwards, as in joined files, and a copy keeps them. Pass "
        "AudioFile(path, codec='aac') to encode the audio again, which doesn't help with Opus"
    )


def _always(advice: str) -> Callable[[EncodePlan, re.Match[str]], str]:
    """Returns `advice` for every match, with what ``{output}``, ``{found[1]}`` and the like stand for."""
    return lambda plan, found: advice.format(codec=plan.codec, output=plan.output.name, found=found)


def _known_options(plan: EncodePlan) -> dict[str, Option]:
    return {
        **capabilities.global_options(plan.program),
        **capabilities.muxer_options(plan.program, plan.output.container.removeprefix(".")),
        # Last, so that an encoder's own option replaces a general one of the same name.
        **capabilities.encoder_options(plan.program, plan.codec),
    }


# Patterns in FFmpeg's messages, and the advice for each. The first match counts, so causes come before consequences.
_ADVICE: tuple[tuple[str, Callable[[EncodePlan, re.Match[str]], str | None]], ...] = (
    (r"(?:Unknown encoder|Invalid encoder type) '(.+)'", _codec),
    (r"Unrecognized option '(.+)'", _option),
    (r"Requested output format '(.+)' is not", _container),
    (r"Unable to (?:find a suitable|choose an) output format for '(.*?)'", _no_container),
    (r"Unknown pixel format requested: (.+)\.", _pixel_format),
    (r"Error setting preset/tune (.+)/(.+)\.", _preset_or_tune),
    (r"Error setting option (\S+) to value (.+)\.", _value),
    (r"No such filter: '(.+)'", _filter),
    (
        r"\[Parsed_(\w+)_\d+ @ \S+\] Option '(.+)' not found|Error applying option '(.+)' to filter '(.+)'",
        _filter_option,
    ),
    (r"Error parsing filterchain '(.+)' around", _filter_text),
    (r"Automatic encoder selection failed.* Default encoder for format (\S+) ", _no_encoder),
    (
        r"The encoder '(.+?)' is experimental|(\w+) in \w+ support is experimental|experimental codecs are not enabled",
        _experimental,
    ),
    (
        r"Cannot load lib(?:cuda|nvidia)|Cannot load nvcuda|No (?:capable|VA) d|No device available"
        r"|No NVENC capable devices|OpenEncodeSessionEx failed|Failed to set value '.*' for option 'vaapi",
        _always(
            "{codec} needs a GPU and its driver, which FFmpeg didn't find. Use libx264, which needs no GPU"
        ),
    ),
    (r"\[(\S+) @ \S+\] muxer does not support non seekable output", _not_seekable),
    (
        r"only supported in MP4|are supported for|not compatible with|Could not find tag for codec"
        r"|not currently supported in container"
        r"|supports only a single video|Unsupported codec id|No audio stream present|does not contain any stream",
        _other_codec,
    ),
    (r"(?:width|height) not divisible by", _odd_size),
    (
        r"Source (?:Width|Height) must be at least (\d+)",
        _always(
            "{codec} needs pictures of at least {found[1]}x{found[1]} pixels. Scale them, or use another codec"
        ),
    ),
    (r"(?i)non.monoton\w+ dts(?: in output|;)|non monotonically increasing dts to muxer", _times_go_back),
    (r"Cannot write more than one file with the same name", _one_picture),
    (r"fps \d+ is too large", _no_timecode),
    (
        r"Connection refused",
        _always("nothing listens at {output}. Start the server or player first"),
    ),
    (
        FAILED_OUTPUT.pattern,
        _always(
            "one output of tee failed. Fix it, or add onfail=ignore to its options to get a warning instead"
        ),
    ),
    (r"FFmpeg encoded (\d+) of (\d+) frames and ended with exit code 0", _frame_count),
)
