"""One record for each encoder of which something is known that FFmpeg's help doesn't tell, or tells too late."""

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from penstock._formats import codecs
from penstock._formats.codecs import Codec
from penstock._formats.pixel_formats import PALETTE

Options = Mapping[str, object]
_NO_OPTIONS: Options = MappingProxyType({})


class HdrParameters(NamedTuple):
    """How an encoder takes HDR metadata: FFmpeg's option for its parameters, and the names of the parameters."""

    option: str
    mastering_display: str
    content_light: str
    has_whole_numbers: bool


class Encoder(NamedTuple):
    """What is known of an encoder."""

    codec: str  # FFmpeg's name of what it makes.
    # Most builds have it. It is not looked up before FFmpeg starts, because that delays the first frame: an FFmpeg
    # without it fails, and `penstock._encoding.advice` names what it has.
    is_common: bool = False
    is_audio: bool = False  # It encodes audio.
    is_playable: bool = False  # Lossy, and it has yuv420p, which every player shows.
    # It has this option, for which the `Encoder` has an argument, and which is then not looked up.
    has_crf: bool = False
    has_preset: bool = False  # The same.
    # Its options for the qualities "draft", "good" and "master". The SSIM of luma in dB, as a mean over rendered
    # motion and a noisy camera at 640×360, is within 1.5 dB of libx264's, with the presets that encoders have by
    # default. Text on a screen looks at least as good as with libx264, but for mjpeg and mpeg4.
    levels: tuple[Options, Options, Options] | None = None
    lossless: Options | None = None  # Its options for the quality "lossless"; None if that isn't known.
    default: Options = _NO_OPTIONS  # Replaces FFmpeg's default, an option for quality.
    image_default: Options = _NO_OPTIONS  # The same for images.
    rgb_encoder: str | None = None  # The encoder of the same codec that takes RGB.
    parameters: tuple[str, ...] = ()  # FFmpeg's options that hold parameters of its own. The last one counts.
    hdr: HdrParameters | None = None  # How it takes HDR metadata.
    # The option and the parameter for its number of threads. It starts one for each CPU, whatever ``-threads`` says.
    pool: tuple[str, str] | None = None
    # Before a frame that comes late, its decoding times would run into those of the frames before.
    reorders: bool = False
    # FFmpeg calls formats with more bits a sample experimental, and those of bare sensors.
    most_depth: int | None = None
    # Those of its formats with alpha that its library has for certain; None if all.
    alpha_formats: tuple[str, ...] | None = None
    alpha_options: Options = _NO_OPTIONS  # FFmpeg's options without which it refuses alpha.
    # It ignores the alpha of its RGBA formats, unless the option ``format`` has one of `alpha_values`.
    drops_alpha: bool = False
    alpha_values: tuple[str, ...] = ()  # See `drops_alpha`.
    # Each frame has a palette of its own. QuickTime and APNG have one for the whole video.
    has_palettes: bool = False
    # The pixel format that it gets, whatever that of the frames: it has 256 colors.
    palette: str | None = None
    multiplies_alpha: bool = False  # It multiplies colors by their alpha, unless they say that they are.
    has_range: bool = True  # The file says whether the range is full.
    unit_s: Fraction = Fraction(0)  # The finest unit of times that it takes, in seconds; 0 for any.
    blends: bool = False  # FFmpeg marks its frames for blending, although each is a whole picture.


class _Maker(NamedTuple):
    """What is known of the encoders of a maker of hardware.

    Attributes:
        is_tried: they are tried for codecs such as "auto-h264". The others need a device and filters of their own.
        drops_alpha: as of `Encoder`.
    """

    is_tried: bool = False
    drops_alpha: bool = True


# By the ends of the names of encoders, in the order in which they are tried: NVIDIA, Intel and AMD come first.
_MAKERS = {
    **dict.fromkeys(("nvenc", "qsv", "amf"), _Maker(is_tried=True)),
    **dict.fromkeys(("vaapi", "vulkan", "v4l2m2m", "omx", "mf"), _Maker()),
    **dict.fromkeys(("mediacodec", "rkmpp", "videotoolbox"), _Maker(drops_alpha=False)),
}
_X264 = Encoder(
    codec="h264",
    is_common=True,
    has_crf=True,
    has_preset=True,
    lossless={"qp": 0},
    parameters=("x264opts", "x264-params"),
    hdr=HdrParameters("x264-params", "mastering-display", "cll", True),
    reorders=True,
)
_PLAYABLE = Encoder(codec="mpeg4", is_common=True, is_playable=True)
_VPX = _PLAYABLE._replace(codec="vp8", has_crf=True)
_AOM = _PLAYABLE._replace(codec="av1", has_crf=True, parameters=("aom-params",))
_NVENC = _PLAYABLE._replace(codec="h264", has_preset=True, drops_alpha=True)
_AUDIO = Encoder(codec="aac", is_common=True, is_audio=True)
_ENCODERS = {
    "libx264": _X264._replace(
        is_playable=True, levels=({"crf": 30}, {"crf": 21}, {"crf": 14}), rgb_encoder="libx264rgb"
    ),
    "libx265": _X264._replace(
        codec="hevc",
        is_playable=True,
        levels=({"crf": 32}, {"crf": 22}, {"crf": 14}),
        lossless={"x265-params": "lossless=1"},
        parameters=("x265-params",),
        hdr=HdrParameters("x265-params", "master-display", "max-cll", True),
        pool=("x265-params", "pools"),
        alpha_formats=(),
    ),
    "libvpx-vp9": _VPX._replace(
        codec="vp9",
        levels=({"crf": 52, "b:v": 0}, {"crf": 33, "b:v": 0}, {"crf": 16, "b:v": 0}),
        lossless={"lossless": 1},
        alpha_formats=("yuva420p",),
    ),
    "libvpx": _VPX._replace(alpha_options={"auto-alt-ref": 0}),  # without hidden alternate reference frames
    "libsvtav1": _AOM._replace(
        has_preset=True,
        levels=({"crf": 52}, {"crf": 23}, {"crf": 7}),
        parameters=("svtav1-params",),
        hdr=HdrParameters("svtav1-params", "mastering-display", "content-light", False),
        pool=("svtav1-params", "lp"),
    ),
    "libaom-av1": _AOM,
    # FFmpeg takes up to 65,535 units a second (vop_time_increment_resolution); of these each usual rate has whole ones.
    "mpeg4": _PLAYABLE._replace(
        levels=({"q:v": 6}, {"q:v": 3}, {"q:v": 1, "qmin": 1}), unit_s=Fraction(1, 60_000)
    ),
    "mpeg2video": _PLAYABLE._replace(codec="mpeg2video", has_range=False),
    # For images, the best quality that FFmpeg advises for JPEG. Its default aims at the bit rate of a small video.
    "mjpeg": _PLAYABLE._replace(
        codec="mjpeg", levels=({"q:v": 8}, {"q:v": 3}, {"q:v": 2}), image_default={"q:v": 2}
    ),
    "h264_nvenc": _NVENC,
    "hevc_nvenc": _NVENC._replace(codec="hevc"),
    "av1_nvenc": _NVENC._replace(codec="av1"),
    "libx264rgb": _X264._replace(hdr=None),
    "prores_ks": Encoder(codec="prores", is_common=True, has_range=False),
    "ffv1": Encoder(codec="ffv1", is_common=True, lossless={}, most_depth=16),
    "rawvideo": Encoder(codec="rawvideo", is_common=True, lossless={}),
    "png": Encoder(codec="png", is_common=True, lossless={}, has_palettes=True),
    "gif": Encoder(codec="gif", is_common=True, has_palettes=True, palette=PALETTE),
    "h264_vaapi": Encoder(codec="h264", is_common=True, drops_alpha=True),
    "hevc_vaapi": Encoder(codec="hevc", is_common=True, drops_alpha=True),
    "librav1e": Encoder(codec="av1"),
    # FFmpeg's default is a bit rate of 0.2 Mbit/s, which ruins larger pictures. Chosen, not measured.
    "libtheora": Encoder(codec="theora", default={"q:v": 8}),
    "libwebp": Encoder(codec="webp", blends=True),
    "libwebp_anim": Encoder(codec="webp"),
    "prores_aw": Encoder(codec="prores"),
    "prores_ks_vulkan": Encoder(codec="prores", drops_alpha=True),
    "hap": Encoder(codec="hap", drops_alpha=True, alpha_values=("hap_alpha", "11")),
    "exr": Encoder(codec="exr", multiplies_alpha=True),
    "aac": _AUDIO,
    "libopus": _AUDIO._replace(codec="opus"),
    "libmp3lame": _AUDIO._replace(codec="mp3"),
    **{name: _AUDIO._replace(codec=name) for name in ("flac", "pcm_s16le", "pcm_s24le", "pcm_f32le")},
}
#: All of FFmpeg's options that hold parameters of an encoder's own.
PARAMETERS = tuple(dict.fromkeys(name for one in _ENCODERS.values() for name in one.parameters))
#: The encoders of hardware that are tried for a codec, by the ends of their names.
TRIED_MAKERS = tuple(name for name, one in _MAKERS.items() if one.is_tried)


def known(name: str) -> Encoder:
    """The record of an encoder by FFmpeg's name."""
    if (found := _ENCODERS.get(name)) is not None:
        return found
    codec, _, maker = name.rpartition("_")
    if maker in _MAKERS:
        return Encoder(codec=codec, drops_alpha=_MAKERS[maker].drops_alpha)
    return Encoder(codec=name)


def codec_of(name: str) -> Codec:
    """The record of what an encoder makes."""
    return codecs.known(known(name).codec)


def common(*, is_audio: bool = False) -> tuple[str, ...]:
    """The encoders that most builds have, by FFmpeg's names."""
    return tuple(name for name, one in _ENCODERS.items() if one.is_common and one.is_audio == is_audio)


def with_quality(*, is_lossless: bool) -> list[str]:
    """The encoders whose options for the quality "lossless", or for the others, are known."""
    known = ((name, one.lossless if is_lossless else one.levels) for name, one in _ENCODERS.items())
    return sorted(name for name, options in known if options is not None)


def with_hdr() -> tuple[str, ...]:
    """The encoders that take HDR metadata."""
    return tuple(name for name, one in _ENCODERS.items() if one.hdr is not None)


def needs_hardware(name: str) -> bool:
    """Whether an encoder needs a GPU or the like. FFmpeg lists it where there is none, too."""
    return name.rpartition("_")[2] in _MAKERS
