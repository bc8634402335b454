"""One record for each codec of which something is known that libav doesn't tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Codec:
    """What is known of a codec.

    Attributes:
        has_frame_in_each: each packet holds one frame that is shown, or one of its two fields. libav tells that of
            codecs whose frames need no others. A packet of any other codec may hold none, such as VP8's alternative
            reference frames.
        has_no_fields: each packet holds no field, although some containers mark all packets as keyframes.
        marks_damage: a decoder with one thread marks each frame of which it conceals a part. Others don't mark all of
            them: libav is asked to stop at an error there (``err_detect=explode``). For these codecs, it would also
            find errors in whole files: in H.264 that begins inside a group, and in fields of MPEG-2. Measured: 60
            mutations of a file for each codec. Of those that ``explode`` shows, none is unmarked here, but 10 are of
            H.265, and 30 of Motion JPEG.
        is_lenient: to libav's decoder, a tag that it does not know would be damage, and most files have one.
        may_seek: a decoder that begins with a keyframe behind the first one makes the same pictures.
        has_own_palettes: each picture has its palette. QuickTime and AVI tell one only once.
        is_soon_right: a decoder that begins anywhere in this lossy codec gives the right samples within half a second:
            of MP3 at a low bit rate in 0.3 s, of others in two packets. Opus needs up to one.
        adds_noise: the decoder adds noise. With its option ``cons_noisegen``, that depends on the packet alone, and not
            on those before.
        alpha_decoder: FFmpeg's decoder that reads alpha stored beside the frames, which its native one ignores.
    """

    has_frame_in_each: bool = False
    has_no_fields: bool = False
    marks_damage: bool = False
    is_lenient: bool = False
    may_seek: bool = True
    has_own_palettes: bool = False
    is_soon_right: bool = False
    adds_noise: bool = False
    alpha_decoder: str | None = None


_OTHER = Codec()
_CODECS = {
    "h264": Codec(has_frame_in_each=True, marks_damage=True),
    **dict.fromkeys(("mpeg1video", "mpeg2video"), Codec(has_frame_in_each=True, marks_damage=True)),
    **dict.fromkeys(("hevc", "av1"), Codec(has_frame_in_each=True)),
    "vp8": Codec(alpha_decoder="libvpx"),
    "vp9": Codec(has_frame_in_each=True, alpha_decoder="libvpx-vp9"),
    **dict.fromkeys(("ffv1", "cfhd"), Codec(has_frame_in_each=True, has_no_fields=True)),
    "png": Codec(has_frame_in_each=True, has_no_fields=True, has_own_palettes=True),
    **dict.fromkeys(("gif", "wmv1"), Codec(has_no_fields=True)),
    "wmv2": Codec(has_no_fields=True, marks_damage=True),
    **dict.fromkeys(("mpeg4", "h263", "flv1", "msmpeg4v3", "rv20"), Codec(marks_damage=True)),
    "tiff": Codec(is_lenient=True),
    **dict.fromkeys(("dirac", "smc"), Codec(may_seek=False)),
    **dict.fromkeys(("aac", "mp2", "mp3", "vorbis"), Codec(is_soon_right=True)),
    **dict.fromkeys(("ac3", "eac3"), Codec(is_soon_right=True, adds_noise=True)),
}


def known(name: str) -> Codec:
    """The record of a codec by FFmpeg's name."""
    return _CODECS.get(name, _OTHER)
