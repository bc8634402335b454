"""Small clips for the tests on reading: one of each codec, pixel format and oddity, made by the real FFmpeg when asked.

`CLIPS` has them all by name, `VIDEOS` those that decode without fault, `DAMAGED` those that do so up to one, and
`NO_MEDIA` what is no media at all. Nothing is made before `clip(name)` is called.
"""

from __future__ import annotations

import functools
import getpass
import hashlib
import io
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import av
import pytest

from penstock._ffmpeg.program import capabilities
from support.cases import ffmpegs

# Now, for tests may set another one later.
_TEMPORARY = Path(tempfile.gettempdir())

_IDENTITY = (1, 0, 0, 1)


@dataclass(frozen=True, slots=True)
class Clip:
    """How a clip is made, and what it is then.

    Attributes:
        ending: of its name, which tells FFmpeg the container.
        arguments: FFmpeg's, between its inputs and its output.
        size: width and height of the frames as they are stored, in pixels.
        frames: how many decode without fault; None if that depends on the decoder.
        rate: frames per second, before any were taken out.
        pixel_format: of the frames.
        told: fields of its best `MediaInfo.Video`, and what they are.
        inputs: FFmpeg's arguments for its inputs, where they are more than one picture that moves.
        of: the clip that it is made of, if it is.
        change: what is done to the bytes of that clip.
    """

    ending: str
    arguments: tuple[str, ...] = ()
    size: tuple[int, int] = (64, 48)
    frames: int | None = 12
    rate: Fraction = Fraction(25)
    pixel_format: str = "yuv420p"
    told: Mapping[str, object] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    of: str = ""
    change: Callable[[bytes], bytes] | None = None


def clip(name: str) -> Path:
    """The file, made now if it is not there; several processes may ask at once.

    Skips the test if FFmpeg lacks the encoder.
    """
    path = _folder() / f"{name}.{CLIPS[name].ending}"
    if not path.exists():
        _make(CLIPS[name], path)
    return path


@functools.cache
def _folder() -> Path:
    """For all who make the same clips with the same FFmpeg."""
    recipe = Path(__file__).read_bytes() + capabilities.stdout_of(ffmpegs()[0], "-version").encode()
    folder = _TEMPORARY / f"penstock-clips-{getpass.getuser()}-{hashlib.sha256(recipe).hexdigest()[:16]}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _make(recipe: Clip, path: Path) -> None:
    """Under another name first: whoever sees the clip sees all of it."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        if recipe.change is not None:
            made.write_bytes(recipe.change(clip(recipe.of).read_bytes() if recipe.of else b""))
        else:
            _encode(recipe, made)
        made.replace(path)


def _encode(recipe: Clip, path: Path) -> None:
    program = ffmpegs()[0]
    known = capabilities.encoders(program)
    for encoder in recipe.arguments:
        if encoder.startswith("lib") and known and encoder not in known:
            pytest.skip(f"this FFmpeg has no encoder {encoder}")
    if recipe.of:
        inputs: tuple[str, ...] = ("-i", f"file:{clip(recipe.of)}")
    else:
        inputs = recipe.inputs or moving(recipe.size, recipe.frames or 0, recipe.rate)
    command = [program, "-v", "error", *inputs, *recipe.arguments, "-y", f"file:{path}"]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=250, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr.decode()}"


def moving(size: tuple[int, int], frames: int = 12, rate: Fraction = Fraction(25)) -> tuple[str, ...]:
    """FFmpeg's input of frames that all differ."""
    width, height = size
    # The source draws even sizes only, unless told of a pixel format that has others.
    source = f"testsrc2=size={width + width % 2}x{height + height % 2}:rate={rate}"
    odd = f",format=yuv444p,crop={width}:{height}:0:0" if width % 2 or height % 2 else ""
    return ("-f", "lavfi", "-i", f"{source},trim=end_frame={frames}{odd}")


def sound(seconds: float, layout: str = "mono") -> tuple[str, ...]:
    """FFmpeg's input of one tone in every channel."""
    return ("-f", "lavfi", "-i", f"sine=d={seconds},aformat=channel_layouts={layout}")


def _matrix(a: int, b: int, c: int, d: int) -> bytes:
    """As a track's header has it: nine numbers, 16.16 or 2.30 fixed point (ISO 14496-12, 8.3.2)."""
    fixed = [number << 16 for number in (a, b, 0, c, d, 0, 0, 0)] + [1 << 30]
    return b"".join(number.to_bytes(4, "big", signed=True) for number in fixed)


def turned(a: int, b: int, c: int, d: int) -> Callable[[bytes], bytes]:
    """A display matrix for an MP4's first track. By hand, for FFmpeg's options for it differ between its versions."""

    def change(data: bytes) -> bytes:
        track = data.index(b"tkhd")
        at = data.index(_matrix(*_IDENTITY), track)
        return data[:at] + _matrix(a, b, c, d) + data[at + 36 :]

    return change


def cut(share: float) -> Callable[[bytes], bytes]:
    """The first `share` of the bytes."""
    return lambda data: data[: int(len(data) * share)]


def zeroed(data: bytes, start: int | None = None) -> bytes:
    """With zeros for a tenth of the bytes, in the middle."""
    start, length = len(data) // 2 if start is None else start, len(data) // 10
    return data[:start] + bytes(length) + data[start + length :]


def list_packets(path: Path) -> list[tuple[int, int]]:
    """The places and sizes of the packets of the video."""
    with av.open(str(path)) as file:
        return [(one.pos, one.size) for one in file.demux(video=0) if one.size and one.pos is not None]


def zeroed_packets(data: bytes) -> bytes:
    """`zeroed` from within a packet on. Whole packets would be missed by nobody."""
    with av.open(io.BytesIO(data)) as file:
        packets = [packet for packet in file.demux(video=0) if packet.size]
    hit = packets[len(packets) // 2]
    assert hit.pos is not None
    return zeroed(data, hit.pos + hit.size // 2)


def until(mark: bytes, before: int = 0) -> Callable[[bytes], bytes]:
    """The bytes up to a mark, less those `before` it that belong to it."""
    return lambda data: data[: data.index(mark) - before]


H264 = ("-c:v", "libx264", "-preset", "veryfast", "-threads", "1")
# Two B-frames between any two others, whatever the picture, and a keyframe each 12.
H264_B = (*H264, "-g", "12", "-x264-params", "bframes=2:b-adapt=0:scenecut=0")
H265 = ("-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none:pools=none:bframes=2")
VP9 = ("-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-threads", "1")
FFV1 = ("-c:v", "ffv1", "-level", "3", "-threads", "1")
PRORES = ("-c:v", "prores_ks", "-threads", "1")


def as_(pixel_format: str) -> tuple[str, ...]:
    return ("-pix_fmt", pixel_format)


def _ffv1(pixel_format: str, bit_depth: int = 8, **others: object) -> Clip:
    told = {"codec": "ffv1", "bit_depth": bit_depth}
    return Clip("mkv", (*FFV1, *as_(pixel_format)), pixel_format=pixel_format, told=told, **others)  # type: ignore[arg-type]


def _tagged(colors: str, **told: object) -> Clip:
    """H.264 whose colors are told; the pixels are what they were."""
    pixel_format = "yuvj420p" if told.get("color_range") == "full" else "yuv420p"  # FFmpeg's old name for it
    arguments = ("-vf", f"format=yuv420p,setparams={colors}", *H264)
    return Clip("mp4", arguments, pixel_format=pixel_format, told=told)


def _turned(matrix: tuple[int, int, int, int], rotation: int) -> Clip:
    return Clip("mp4", of="h264", frames=30, change=turned(*matrix), told={"rotation": rotation})


H264_CLIPS = {
    "h264": Clip("mp4", (*H264_B, *as_("yuv420p")), frames=30, told={"codec": "h264", "bit_depth": 8}),
    "h264_mkv": Clip("mkv", ("-c", "copy"), of="h264", frames=30, told={"frames": None}),
    "h264_ts": Clip("ts", ("-c", "copy"), of="h264", frames=30, told={"frames": None}),
    "h264_large": Clip(
        "mp4", (*H264_B, *as_("yuv420p")), size=(322, 182), frames=24, rate=Fraction(30000, 1001)
    ),
    "h264_10bit": Clip(
        "mp4",
        (*H264_B, *as_("yuv420p10le")),
        pixel_format="yuv420p10le",
        told={"profile": "High 10", "bit_depth": 10},
    ),
    "h264_422_10bit": Clip(
        "mp4", (*H264_B, *as_("yuv422p10le")), pixel_format="yuv422p10le", told={"bit_depth": 10}
    ),
    "h264_444_odd": Clip("mp4", (*H264_B, *as_("yuv444p")), size=(63, 47), pixel_format="yuv444p"),
    "h264_rgb": Clip(
        "mkv",
        ("-c:v", "libx264rgb", "-preset", "ultrafast", "-qp", "0"),
        pixel_format="gbrp",
        told={"color_matrix": "gbr"},
    ),
    "long": Clip("mp4", (*H264, "-g", "60", *as_("yuv420p")), size=(160, 120), frames=600, rate=Fraction(60)),
}

OTHER_CODECS = {
    "h265": Clip("mp4", (*H265, *as_("yuv420p")), told={"codec": "hevc", "bit_depth": 8}),
    "h265_10bit": Clip(
        "mkv",
        (*H265, *as_("yuv420p10le")),
        pixel_format="yuv420p10le",
        told={"profile": "Main 10", "bit_depth": 10},
    ),
    "vp9": Clip("webm", (*VP9, *as_("yuv420p")), told={"codec": "vp9", "bit_depth": 8}),
    "vp9_10bit": Clip(
        "webm",
        (*VP9, *as_("yuv420p10le")),
        pixel_format="yuv420p10le",
        told={"profile": "Profile 2", "bit_depth": 10},
    ),
    "mjpeg_420": Clip(
        "avi",
        ("-c:v", "mjpeg", "-q:v", "3", *as_("yuvj420p")),
        pixel_format="yuvj420p",
        told={"codec": "mjpeg", "color_range": "full", "color_matrix": "bt601"},
    ),
    "mjpeg_422": Clip(
        "mkv",
        ("-c:v", "mjpeg", "-q:v", "3", *as_("yuvj422p")),
        pixel_format="yuvj422p",
        told={"codec": "mjpeg", "color_range": "full", "color_matrix": "bt601"},
    ),
    "prores": Clip(
        "mov",
        (*PRORES, *as_("yuv422p10le")),
        pixel_format="yuv422p10le",
        told={"codec": "prores", "bit_depth": 10},
    ),
    "rawvideo": Clip("avi", ("-c:v", "rawvideo", *as_("yuv420p")), told={"codec": "rawvideo"}),
    "gif": Clip("gif", size=(64, 48), pixel_format="bgra", told={"codec": "gif"}),
    "png": Clip(
        "png", (*as_("rgb24"), "-update", "1"), frames=1, pixel_format="rgb24", told={"codec": "png"}
    ),
}

_FADING = (
    *("-f", "lavfi", "-i"),
    "color=red:size=64x48:rate=25,format=yuva420p,"
    "geq=lum=p(X\\,Y):cb=p(X\\,Y):cr=p(X\\,Y):a=X*4,trim=end_frame=12",
)

# FFmpeg's own decoders give them without alpha.
ALPHA_CLIPS = {
    "vp9_alpha": Clip(
        "webm", (*VP9, *as_("yuva420p"), "-b:v", "1M"), inputs=_FADING, told={"has_separate_alpha": True}
    ),
    "vp8_alpha": Clip(
        "webm",
        ("-c:v", "libvpx", *as_("yuva420p"), "-auto-alt-ref", "0", "-b:v", "1M"),
        inputs=_FADING,
        told={"has_separate_alpha": True},
    ),
}

FFV1_CLIPS = {
    "ffv1_yuv420p": _ffv1("yuv420p"),
    "ffv1_yuv420p_odd": _ffv1("yuv420p", size=(63, 47)),
    "ffv1_yuv422p": _ffv1("yuv422p"),
    "ffv1_yuv422p_odd": _ffv1("yuv422p", size=(63, 47)),
    "ffv1_yuv444p": _ffv1("yuv444p"),
    "ffv1_yuv444p_odd": _ffv1("yuv444p", size=(63, 47)),
    "ffv1_yuv422p10le": _ffv1("yuv422p10le", 10),
    "ffv1_yuv444p16le": _ffv1("yuv444p16le", 16),
    "ffv1_yuva420p": _ffv1("yuva420p"),
    "ffv1_gray": _ffv1("gray"),
    "ffv1_gray16le": _ffv1("gray16le", 16),
    "ffv1_bgr0": _ffv1("bgr0"),
    "ffv1_gbrp10le": _ffv1("gbrp10le", 10),
    "ffv1_gbrp16le": _ffv1("gbrp16le", 16),
}

# Three frames of each seven are there, so that they last one time unit, one, and five.
_UNEVEN = ("-vf", "select='lt(mod(n,7),3)'", "-fps_mode", "vfr", *H264_B, *as_("yuv420p"))
_FASTER = moving((64, 48), 28, Fraction(30))

ODDITIES = {
    "variable_mp4": Clip(
        "mp4", _UNEVEN, inputs=_FASTER, told={"is_variable_frame_rate": True, "frame_rate": Fraction(15)}
    ),
    # FFmpeg writes the rate of what it encoded to the file, whose frames do not keep it: there are 11 in 0.767 s.
    "variable_mkv": Clip(
        "mkv",
        _UNEVEN,
        inputs=_FASTER,
        told={"is_variable_frame_rate": True, "frame_rate": Fraction(11000, 767)},
    ),
    "rotated_90": _turned((0, 1, -1, 0), 90),
    "rotated_180": _turned((-1, 0, 0, -1), 180),
    "rotated_270": _turned((0, -1, 1, 0), 270),
    "mirrored": Clip(
        "mp4",
        of="h264",
        frames=30,
        change=turned(-1, 0, 0, 1),
        told={"rotation": 180, "is_mirrored": True},
    ),
    "untagged": Clip(
        "mp4",
        ("-vf", "format=yuv420p", *H264),
        told={"color_matrix": None, "color_range": None, "color_transfer": None},
    ),
    "bt709": _tagged(
        "colorspace=bt709:color_primaries=bt709:color_trc=bt709:range=tv",
        color_matrix="bt709",
        color_range="limited",
        color_primaries="bt709",
        color_transfer="bt709",
    ),
    "bt709_full": _tagged("colorspace=bt709:range=pc", color_matrix="bt709", color_range="full"),
    "bt601": _tagged("colorspace=smpte170m:range=tv", color_matrix="bt601", color_range="limited"),
    "bt601_full": _tagged("colorspace=smpte170m:range=pc", color_matrix="bt601", color_range="full"),
    "bt601_625": _tagged("colorspace=bt470bg:range=tv", color_matrix="bt601", color_range="limited"),
    "bt2020": _tagged("colorspace=bt2020nc:range=tv", color_matrix="bt2020", color_range="limited"),
    "bt2020_full": _tagged("colorspace=bt2020nc:range=pc", color_matrix="bt2020", color_range="full"),
    "bt2020_10bit": Clip(
        "mp4",
        ("-vf", "format=yuv420p10le,setparams=colorspace=bt2020nc:range=tv:color_trc=smpte2084", *H264),
        pixel_format="yuv420p10le",
        told={"color_matrix": "bt2020", "color_transfer": "smpte2084"},
    ),
    "smpte240m": _tagged("colorspace=smpte240m", color_matrix="smpte240m"),
    "wide_pixels": Clip(
        "mp4", ("-vf", "setsar=4/3", *H264, *as_("yuv420p")), told={"sample_aspect_ratio": Fraction(4, 3)}
    ),
    "wide_pixels_rotated": Clip(
        "mp4",
        of="wide_pixels",
        change=turned(0, 1, -1, 0),
        told={"sample_aspect_ratio": Fraction(3, 4), "rotation": 90},
    ),
    "interlaced": Clip(
        "ts",
        ("-vf", "setfield=tff", "-flags", "+ildct+ilme", "-c:v", "mpeg2video", "-q:v", "3", *as_("yuv420p")),
        told={"field_order": "tt", "is_variable_frame_rate": False},
    ),
    "starts_late_ts": Clip("ts", (*H264_B, *as_("yuv420p"), "-output_ts_offset", "5"), frames=24),
    "starts_late_mkv": Clip(
        "mkv", (*H264_B, *as_("yuv420p"), "-output_ts_offset", "5"), told={"start_s": 5.0}
    ),
    "one_frame": Clip("mp4", (*H264, *as_("yuv420p")), frames=1),
}

_BOTH = ("-map", "0", "-map", "1")

WITH_AUDIO = {
    "audio_aac": Clip(
        "mp4",
        (*H264_B, *as_("yuv420p"), "-c:a", "aac", "-shortest"),
        inputs=(*moving((64, 48)), *sound(0.48, "stereo")),
        frames=12,
    ),
    "audio_pcm": Clip(
        "mov",
        (*H264, *as_("yuv420p"), "-c:a", "pcm_s16le"),
        inputs=(*moving((64, 48)), *sound(0.48)),
        frames=12,
    ),
    "audio_flac_51": Clip(
        "mkv",
        (*H264, *as_("yuv420p"), "-c:a", "flac", "-strict", "-2"),
        inputs=(*moving((64, 48)), *sound(0.48, "5.1")),
        frames=12,
    ),
    "several_videos": Clip(
        "mkv",
        (*_BOTH, "-disposition:0", "0", "-disposition:1", "default", *H264, *as_("yuv420p")),
        inputs=(*moving((48, 64)), *moving((64, 48))),
        told={"index": 1, "is_default": True},
    ),
    "video_and_cover": Clip(
        "mp4",
        (
            *("-map", "1", "-c:v:0", "mjpeg", "-pix_fmt:v:0", "yuvj420p", "-disposition:v:0", "attached_pic"),
            *("-map", "0", "-c:v:1", "libx264", "-pix_fmt:v:1", "yuv420p"),
        ),
        inputs=(*moving((64, 48)), *moving((32, 32), 1)),
        told={"is_attached_picture": False, "codec": "h264"},
    ),
}

VIDEOS = H264_CLIPS | OTHER_CODECS | FFV1_CLIPS | ODDITIES | WITH_AUDIO
"""They decode without fault, and to as many frames as they say."""

WITHOUT_VIDEO = {
    "audio_only": Clip("wav", ("-c:a", "pcm_s16le"), inputs=sound(0.5, "stereo"), frames=None),
    "audio_only_m4a": Clip("m4a", ("-c:a", "aac"), inputs=sound(0.5), frames=None),
    "audio_and_cover": Clip(
        "m4a",
        (*_BOTH, "-c:a", "aac", "-c:v", "mjpeg", *as_("yuvj420p"), "-disposition:v", "attached_pic"),
        inputs=(*sound(0.5), *moving((32, 32), 1)),
        frames=None,
    ),
    "no_streams": Clip("mp4", (*H264, "-frames:v", "0"), inputs=moving((64, 48)), frames=0),
}
"""They are media, and have no video but a cover."""

_FRAGMENTED = ("-c", "copy", "-movflags", "frag_keyframe+empty_moov")

ZERO_FRAMES = {
    "fragmented": Clip("mp4", _FRAGMENTED, of="h264", frames=30),
    "zero_frames_mp4": Clip("mp4", of="fragmented", change=until(b"moof", 4), frames=0),
    "zero_frames_avi": Clip(
        "avi", ("-c:v", "rawvideo", "-frames:v", "0", *as_("yuv420p")), inputs=moving((64, 48)), frames=0
    ),
}

DAMAGED = {
    "fast_start": Clip("mp4", ("-c", "copy", "-movflags", "+faststart"), of="h264", frames=30),
    "cut_mp4": Clip("mp4", of="fast_start", change=cut(0.6), frames=None),
    "cut_mkv": Clip("mkv", of="h264_mkv", change=cut(0.6), frames=None),
    "cut_ts": Clip("ts", of="h264_ts", change=cut(0.6), frames=None),
    "corrupt_mkv": Clip("mkv", of="h264_mkv", change=zeroed_packets, frames=None),
    "corrupt_ts": Clip("ts", of="h264_ts", change=zeroed, frames=None),
}

NO_MEDIA = {
    "text": Clip("dat", change=lambda _: b"This is no video.\n" * 500),
    "text_txt": Clip("txt", change=lambda _: b"This is no video.\n" * 500),
    "text_mp4": Clip("mp4", change=lambda _: b"This is no video.\n" * 500),
    "empty": Clip("mp4", change=lambda _: b""),
    # A cluster's ID (RFC 9559, 5.1.3).
    "cut_before_the_frames": Clip("mkv", of="h264_mkv", change=until(b"\x1f\x43\xb6\x75")),
    "cut_before_the_index": Clip("mp4", of="h264", change=cut(0.5)),
}
"""FFmpeg must not know what they are, or that they are text."""

CLIPS = VIDEOS | ALPHA_CLIPS | WITHOUT_VIDEO | ZERO_FRAMES | DAMAGED | NO_MEDIA
