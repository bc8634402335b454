"""One record for each codec of which something is known that libav doesn't tell."""

from typing import NamedTuple


class Codec(NamedTuple):
    """What is known of a codec."""

    # Each packet holds one frame that is shown, or one of its two fields. libav tells that of codecs whose frames
    # need no others. A packet of any other codec may hold none, such as VP8's alternative reference frames.
    has_frame_in_each: bool = False
    # Each packet holds no field, although some containers mark all packets as keyframes.
    has_no_fields: bool = False
    # A decoder with one thread marks each frame of which it conceals a part. Others don't mark all of them: libav is
    # asked to stop at an error there (``err_detect=explode``). For these codecs, it would also find errors in whole
    # files: in H.264 that begins inside a group, and in fields of MPEG-2. Measured: 60 mutations of a file for each
    # codec. Of those that ``explode`` shows, none is unmarked here, but 10 are of H.265, and 30 of Motion JPEG.
    marks_damage: bool = False
    # To libav's decoder, a tag that it does not know would be damage, and most files have one.
    is_lenient: bool = False
    # A decoder that begins with a keyframe behind the first one makes the same pictures.
    may_seek: bool = True
    has_own_palettes: bool = False  # Each picture has its palette. QuickTime and AVI tell one only once.
    # A decoder that begins anywhere in this lossy codec gives the right samples within half a second: of MP3 at a low
    # bit rate in 0.3 s, of others in two packets. Opus needs up to one.
    is_soon_right: bool = False
    # The decoder adds noise. With its option ``cons_noisegen``, that depends on the packet alone, and not on those
    # before.
    adds_noise: bool = False
    # FFmpeg's decoder that reads alpha stored beside the frames, which its native one ignores.
    alpha_decoder: str | None = None
    # In this profile, the samples of a packet depend on the one before it, and on no other. AAC has neither
    # prediction nor SBR then.
    alone_profile: str | None = None
    # The only number of threads with which FFmpeg's decoder makes the same pictures each time.
    right_threads: int | None = None
    may_cut_fields: bool = False  # libav doesn't mark a picture whose second field was cut off.
    # The largest packet that libav takes for a picture that isn't coded (MAX_NVOP_SIZE in libavcodec/mpeg4video.h).
    # Xvid and DivX write one for a delayed frame.
    not_coded_bytes: int = 0
    is_animated: bool = False  # libav can't read pictures of it that move.

    is_raw: bool = False  # Samples as they are, in any pixel format, and without a header.
    aliases: tuple[str, ...] = ()  # What else it is called.
    # The encoders to take for it, the first one that FFmpeg has. FFmpeg itself prefers libaom-av1, which is many
    # times slower by its defaults.
    software: tuple[str, ...] = ()
    is_jpeg: bool = False  # It has no color tags, and is BT.601 of the full range (JFIF 1.02).
    # It has color tags, or the container does. WebP has none, and libav reads none that is animated, so that no
    # rehearsal finds out.
    has_color_tags: bool = True
    # Values of FFmpeg's option ``profile`` for 4:4:4; empty if they say nothing of chroma.
    full_chroma_profiles: tuple[str, ...] = ()
    chunks_in: str = "mov"  # The container of a video's chunks, by FFmpeg's name.
    is_chunked: bool = True  # One of the containers into which chunks are joined can have its fragments.
    # The pixel formats that current browsers play (developer.mozilla.org: "Media container formats").
    played_formats: tuple[str, ...] = ()


_OTHER = Codec()
_WITH_10_BITS = ("yuv420p", "yuv420p10le")
_CODECS = {
    "h264": Codec(
        has_frame_in_each=True,
        marks_damage=True,
        aliases=("avc", "avc1", "h.264", "x264"),
        software=("libx264",),
        played_formats=("yuv420p", "yuvj420p"),
    ),
    "hevc": Codec(
        has_frame_in_each=True, aliases=("h.265", "h265", "hev1", "hvc1", "x265"), software=("libx265",)
    ),
    "av1": Codec(
        has_frame_in_each=True,
        aliases=("av01",),
        software=("libsvtav1", "libaom-av1"),
        chunks_in="mp4",
        played_formats=_WITH_10_BITS,
    ),
    "vp8": Codec(alpha_decoder="libvpx", aliases=("vp08",), is_chunked=False, played_formats=("yuv420p",)),
    "vp9": Codec(
        has_frame_in_each=True,
        alpha_decoder="libvpx-vp9",
        aliases=("vp09",),
        chunks_in="mp4",
        played_formats=_WITH_10_BITS,
    ),
    "mpeg1video": Codec(has_frame_in_each=True, marks_damage=True),
    "mpeg2video": Codec(has_frame_in_each=True, marks_damage=True, may_cut_fields=True),
    "mpeg4": Codec(marks_damage=True, not_coded_bytes=19, aliases=("mp4v",)),
    **dict.fromkeys(("ffv1", "cfhd"), Codec(has_frame_in_each=True, has_no_fields=True)),
    "png": Codec(has_frame_in_each=True, has_no_fields=True, has_own_palettes=True),
    **dict.fromkeys(("gif", "wmv1"), Codec(has_no_fields=True)),
    "wmv2": Codec(has_no_fields=True, marks_damage=True),
    **dict.fromkeys(("h263", "flv1", "msmpeg4v3", "rv20"), Codec(marks_damage=True)),
    **dict.fromkeys(("mjpeg", "ljpeg"), Codec(is_jpeg=True)),
    "prores": Codec(full_chroma_profiles=("4444", "4444xq", "4", "5")),
    "rawvideo": Codec(is_raw=True),
    "webp": Codec(is_animated=True, has_color_tags=False),
    "tiff": Codec(is_lenient=True),
    **dict.fromkeys(("dirac", "smc"), Codec(may_seek=False)),
    # findings/theora-by-threads-is-wrong.sh; VP3 and VP4 have the same decoder.
    **dict.fromkeys(("theora", "vp3", "vp4"), Codec(right_threads=1)),
    "aac": Codec(is_soon_right=True, alone_profile="LC"),
    **dict.fromkeys(("mp2", "mp3", "vorbis"), Codec(is_soon_right=True)),
    **dict.fromkeys(("ac3", "eac3"), Codec(is_soon_right=True, adds_noise=True)),
}
#: FFmpeg's names, by others.
ALIASES = {alias: name for name, one in _CODECS.items() for alias in one.aliases}
#: The encoders of software to take for a codec, for codecs for which hardware is tried, too.
SOFTWARE = {name: one.software for name, one in _CODECS.items() if one.software}


def known(name: str) -> Codec:
    """The record of a codec by FFmpeg's name."""
    return _CODECS.get(name, _OTHER)
