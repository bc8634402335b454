"""What to do about an FFmpeg that failed, by its messages.

Advice stands beside FFmpeg's own words and does not replace them; a message without a known pattern has none.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock._common.messages import argument
from penstock._encoding.plan import EncodePlan
from penstock._ffmpeg.command.arguments import FILTER_OPTIONS
from penstock._ffmpeg.program import capabilities
from penstock._ffmpeg.program.capabilities import Option, did_you_mean
from penstock._ffmpeg.program.messages import without_colors

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


def _known_options(plan: EncodePlan) -> dict[str, Option]:
    return {
        **capabilities.global_options(plan.program),
        **capabilities.muxer_options(plan.program, plan.output.container.removeprefix(".")),
        # Last, so that an encoder's own option replaces a general one of the same name.
        **capabilities.encoder_options(plan.program, plan.codec),
    }


# Patterns in FFmpeg's messages about names and values that the user gave, and the advice for each: FFmpeg doesn't tell
# those that it has. All other messages say by themselves what is wrong. The first match counts.
_ADVICE: tuple[tuple[str, Callable[[EncodePlan, re.Match[str]], str | None]], ...] = (
    (r"(?:Unknown encoder|Invalid encoder type) '(.+)'", _codec),
    (r"Unrecognized option '(.+)'", _option),
    (r"Error setting preset/tune (.+)/(.+)\.", _preset_or_tune),
    (r"Error setting option (\S+) to value (.+)\.", _value),
    (r"FFmpeg encoded (\d+) of (\d+) frames and ended with exit code 0", _frame_count),
)
