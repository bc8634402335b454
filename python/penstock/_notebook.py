"""What notebooks show of results: records as small tables, videos, and frames as pictures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.ffmpeg.frames import VideoFrame
    from penstock.ffmpeg.plan.pixel_formats import FrameLayout
    from penstock.media.info import MediaInfo

# A larger video is not shown: notebooks keep what they show, as text.
_MOST_BYTES = 8_000_000
# A wider picture is made smaller.
_MOST_COLUMNS = 1024
# What current browsers play (developer.mozilla.org: "Media container formats", "Image file type and format guide").
_VIDEOS = {".mp4": "video/mp4", ".m4v": "video/mp4", ".webm": "video/webm"}
_CODECS = {
    "h264": ("yuv420p", "yuvj420p"),
    "vp8": ("yuv420p",),
    "vp9": ("yuv420p", "yuv420p10le"),
    "av1": ("yuv420p", "yuv420p10le"),
}
_PICTURES = {
    ".apng": "image/apng",
    ".avif": "image/avif",
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}


class HtmlTable:
    """A dataclass that notebooks show as a table of its fields."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        rows = ((field.name, getattr(self, field.name)) for field in fields(self))  # type: ignore[arg-type]
        return table(type(self).__name__, rows)


class HtmlVideo(HtmlTable):
    """The same with the video that it tells of, where browsers play that."""

    __slots__ = ()
    output: str

    def _repr_html_(self) -> str:
        return super()._repr_html_() + _player_of(self.output)


def table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """A table of two columns, as HTML. Names and values are text. Records are counted."""
    from html import escape  # only in notebooks

    lines = (
        f"<tr><th style='text-align: left'>{escape(name)}</th><td>{_cell(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def player(media: MediaInfo) -> str:
    """The file in HTML that plays it; empty if browsers do not, or if it is no file or a large one."""
    from base64 import b64encode

    path, video = Path(media.path), media.best_video
    suffix = path.suffix.lower()
    is_played = video is not None and video.pixel_format in _CODECS.get(video.codec, ())
    kind = _VIDEOS.get(suffix) if is_played else None
    kind = kind or _PICTURES.get(suffix)
    try:
        if kind is None or not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return ""
        data = f"data:{kind};base64,{b64encode(path.read_bytes()).decode()}"
    except OSError:
        return ""
    if kind.startswith("image"):
        return f'<img src="{data}" style="max-width: 100%">'
    return f'<video controls src="{data}" style="max-width: 100%"></video>'


def png(frame: VideoFrame, layout: FrameLayout) -> bytes | None:
    """A frame as an image in PNG, at most 1024 pixels wide; None for YUV, of which a frame does not know the matrix."""
    from fractions import Fraction

    import av
    import numpy as np

    from penstock.ffmpeg.plan.pixel_formats import PIXEL_FORMATS, has_alpha, is_gray, is_rgb

    name = layout.pixel_format
    if name not in PIXEL_FORMATS or not (is_rgb(name) or is_gray(name)):
        return None
    whole: Any = av.VideoFrame(layout.width, layout.height, name)
    for memory, samples in zip(whole.planes, frame.planes, strict=True):
        rows = np.frombuffer(memory, np.uint8).reshape(memory.height, memory.line_size)
        data = samples.reshape(layout.height, -1).view(np.uint8)
        rows[:, : data.shape[1]] = data
    width = min(layout.width, _MOST_COLUMNS)
    height = max(1, round(layout.height * width / layout.width))
    color = "rgba" if has_alpha(name) else "gray" if is_gray(name) else "rgb24"
    encoder: Any = av.CodecContext.create("png", "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = width, height, color, Fraction(1)
    packets = [*encoder.encode(whole.reformat(width, height, color)), *encoder.encode(None)]
    return b"".join(map(bytes, packets))


def _player_of(output: str) -> str:
    from penstock.errors import DecoderError
    from penstock.media import probe

    try:
        return player(probe(output)) if Path(output).is_file() else ""
    except (DecoderError, OSError):
        return ""


def _cell(value: object) -> str:
    from html import escape

    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return str(len(value))
    values = value if isinstance(value, tuple) else (value,)
    return "<br>".join(escape("" if one is None else str(one)) for one in values)
