"""The options by which a file plays although FFmpeg could not finish it."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from penstock._common.messages import argument
from penstock._encoding.output import ordinary_path
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT
from penstock._ffmpeg.program import capabilities
from penstock._ffmpeg.program.messages import listing_arguments
from penstock._platform.descriptors import zeros

# Chosen: a kill costs at most about a second, and a fragment's header is small beside half a second of video.
_FRAGMENT_S = 0.5
_HYBRID = "hybrid_fragmented"


def options_for(program: str, output: Output, given: Mapping[str, object]) -> dict[str, object]:
    """FFmpeg's options for an output that survives a kill. `Encoder` describes the errors."""
    if output.facts.has_boxes:
        options = _fragments(program, output)
    elif output.facts.has_elements:
        options = {"cluster_time_limit": round(_FRAGMENT_S * 1e3)}
    else:
        raise ValueError(
            f"{argument('crash_safe', True)} needs mp4, mov, matroska (.mkv) or webm, not {output.container_name!r}. "
            "Write .mkv"
        )
    # Otherwise FFmpeg keeps up to 256 KiB.
    options["flush_packets"] = 1
    if also := next((name for name in given if name in options), None):
        raise ValueError(
            f"{argument('crash_safe', True)} and {argument(f'options.{also}', given[also])} exclude each other. Pass "
            "only one"
        )
    return options


def _fragments(program: str, output: Output) -> dict[str, object]:
    # The header waits for the first fragment, because it has the edit list, which keeps the times.
    flags = "+delay_moov+default_base_moof"
    # At the end, FFmpeg makes an ordinary file of the fragments, for which it has to go back.
    if ordinary_path(output) is not None and makes_ordinary_files(program, output.container):
        flags += f"+{_HYBRID}"
    return {"frag_duration": round(_FRAGMENT_S * 1e6), "movflags": flags}


@functools.lru_cache(maxsize=8)
def makes_ordinary_files(program: str, muxer: str) -> bool:
    """Whether FFmpeg's ordinary files of fragments have their frames. FFmpeg 7.1 and 8.0 lose them."""
    known = capabilities.muxer_options(program, muxer).get("movflags")
    if known is None or _HYBRID not in known.values:
        return False
    import tempfile  # slow to import, and of use for files of MP4 alone

    frame = ("-f", "rawvideo", "-pixel_format", DEFAULT_FORMAT, "-video_size", "16x16")
    picture = (*frame, "-i", zeros(16 * 16 * 3))
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        tried = f"{folder}/tried"
        flags = ("-movflags", f"+delay_moov+{_HYBRID}", "-frag_duration", "500000")
        capabilities.stdout_of(program, *picture, "-frames:v", "1", *flags, "-f", muxer, tried)
        return "\n0," in capabilities.stdout_of(program, "-i", tried, "-c", "copy", *listing_arguments())
