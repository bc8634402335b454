"""One record for each container of which something is known that libav doesn't tell, and what libav tells of others."""

from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple


class Container(NamedTuple):
    """What is known of a container."""

    has_index: bool = False  # FFmpeg finds a keyframe before a place by an index.
    may_seek: bool = False  # FFmpeg can seek. Without an index, it guesses positions, and may begin too late.
    seeks_by_byte: bool = False  # Its demuxer usually seeks past a target that is a time.
    keeps_times: bool = False  # It holds times as they were written.
    may_lack_times: bool = False  # Packets may have no times, and those that libav makes are right.
    # Its header says how long the video is. FFmpeg measures others (MPEG-TS, Y4M), or guesses from the bit rate;
    # neither shows a cut. The header of AVI is often wrong.
    tells_length: bool = False
    guesses_length: bool = False  # libav guesses how long the video is.
    # Its header counts frames, and empty chunks among them, which only prolong the frame before.
    counts_frames: bool = False
    tells_sound: bool = False  # Its header says how long the sound is, and FFmpeg does not notice each cut.
    # A file may lack that header, and libav then guesses the length from the bit rate.
    guesses_sound: bool = False
    counts_samples: bool = False  # It does so by the number of samples.
    # It holds times of the sound. libav counts packets or bytes of AVI, wrongly for some codecs.
    times_sound: bool = True
    # Codecs of audio whose times are wrong: libav cuts FLAC in ASF into frames, ten of which it has read before it
    # gives the first.
    mistimed: tuple[str, ...] = ()
    # A writer that couldn't go back has left a length of 0 or of all ones in the header.
    may_lack_length: bool = False
    drops_damage: bool = False  # libav leaves out what is damaged, and the times of what follows show it.
    # FFmpeg 5.1 counts times from the file's beginning, also if the sound begins later.
    counts_from_file: bool = False
    # It is made of boxes, whose header lists all packets and edits (ISO/IEC 14496-12).
    has_boxes: bool = False
    states_bytes: bool = False  # Its metadata may have the length of the file in bytes.
    has_elements: bool = False  # It is made of elements with their lengths (EBML, RFC 8794).
    # It is made of pages with checksums, of which the last one is marked. A file may be several ones, of which the
    # later ones begin at 0 again (RFC 3533).
    has_pages: bool = False
    # FFmpeg's demuxer opens other files that the file names, or runs it as a script.
    leads_elsewhere: bool = False
    is_text: bool = False  # A file of subtitles alone, which FFmpeg takes as UTF-8, or as UTF-16 with a mark.
    reading: tuple[str, ...] = ()  # FFmpeg's arguments to read it well.
    has_patterns: bool = False  # FFmpeg takes the name of a file for a pattern by default.

    endings: tuple[str, ...] = ()  # Those of its files' names, if it is one of the usual containers.
    # The codec that FFmpeg gives it, if it is one of the usual ones; None if it has no video, or any.
    video: str | None = None
    audio: str | None = None  # The same for sound.
    are_images: bool = False  # FFmpeg writes each picture to a file of its own.
    # Those of streams that have this container. FFmpeg guesses one from a file's ending, which a stream lacks.
    protocols: tuple[str, ...] = ()
    # FFmpeg completes the header at the end, which it cannot do in a pipe: programs then cannot read the result, or
    # read a wrong length from it.
    completes_header: bool = False
    needs_seeking: bool = False  # FFmpeg cannot write it to a pipe.
    segment_endings: tuple[str, ...] = ()  # FFmpeg writes a playlist beside files with these endings.
    opens_one: bool = False  # It opens one file by itself, with the output's name.
    is_list: bool = False  # An output is a list of outputs, which may differ in what they take.
    is_read: bool = True  # libav reads it, and more than one picture of it.
    # FFmpeg's encoder of video, if it holds sound, too. Every player knows the video of libx264.
    encoder: str = "libx264"
    # FFmpeg's encoder of audio, where its own default is one that fewer players take.
    audio_encoder: str | None = None
    subtitle_encoder: str | None = None  # FFmpeg's encoder of subtitles; None if it can't hold any.
    # The encoders of video whose result is known to be right in it: the tests prove it with each FFmpeg.
    listed: tuple[str, ...] = ()
    listed_audio: tuple[str, ...] = ()  # The same for codecs of audio.
    holds_times: bool = False  # It is known to hold the time of each frame.
    # It says how long the last of its timed frames is shown, by the duration of its packet.
    holds_length: bool = False
    # The unit of its times in seconds, if that isn't the finest one that FFmpeg has.
    unit_s: Fraction | None = None
    # Two frames must differ in their times by this, in seconds, where that isn't `unit_s`.
    least_step_s: Fraction | None = None
    # The longest time from a frame to the next that it holds, in seconds; None for any.
    longest_step_s: Fraction | None = None
    most_fps: int | None = None  # The most frames per second; None for any.
    slow_fps: int | None = None  # Viewers slow down videos of more frames per second; None if they don't.
    # It holds times below 0, those of the priming samples of a sound. Others move the picture by them.
    holds_priming: bool = True
    plays_pcm: bool = True  # Players take PCM in it.
    times_pcm: bool = True  # It holds times of PCM. Others count the samples, and hold no pauses.
    # Current browsers play files with these endings (developer.mozilla.org: "Media container formats").
    played_endings: tuple[str, ...] = ()


_EXACT = Container(
    has_index=True, may_seek=True, keeps_times=True, tells_length=True, holds_times=True, holds_length=True
)
# MP4 and QuickTime. Their unit of times is that of MPEG-2 systems, in which all common frame rates are exact. In units
# of 1 µs, FFmpeg loses frames after a pause of 5 minutes, and a pause of 36 minutes breaks the file. The files have 31
# bits for the time from a frame to the next, but FFmpeg 5.1 refuses more than 28 bits between the decoding of a frame
# and its display (mov_read_ctts in libavformat/mov.c).
_QUICKTIME = _EXACT._replace(
    has_boxes=True,
    # In a file that was cut off, the last packet is discarded. Otherwise an FFmpeg that stops at errors stops there,
    # before its decoder has output the frames that it holds back. In other containers, packets in the middle may be
    # marked as corrupt, too. Discarding those would hide that frames are missing.
    reading=("-fflags", "+discardcorrupt"),
    video="h264",
    audio="aac",
    subtitle_encoder="mov_text",
    unit_s=Fraction(1, 90_000),
    longest_step_s=Fraction((2**28 - 1) // 90_000),
)
# Matroska and WebM, whose unit of times is 1 ms.
_MATROSKA = _EXACT._replace(has_elements=True, most_fps=1000, holds_priming=False)
_COMMON = ("libx264", "libx265", "libsvtav1", "libaom-av1")
_AAC, _SOUND = Container(audio_encoder="aac"), Container(tells_sound=True)
_OTHER = Container()
# By FFmpeg's names: of a muxer, and the first one of a demuxer.
_CONTAINERS = {
    "mp4": _QUICKTIME._replace(
        endings=(".mp4",),
        listed=_COMMON,
        listed_audio=("aac", "mp3", "opus"),
        plays_pcm=False,  # newer FFmpeg writes it (ISO/IEC 23003-5)
        played_endings=(".mp4", ".m4v"),
    ),
    "mov": _QUICKTIME._replace(
        endings=(".mov",),
        listed=("libx264", "libx265", "prores_ks"),
        listed_audio=("aac", "mp3", "pcm_s16le", "pcm_s24le"),
        times_pcm=False,
    ),
    "ipod": _QUICKTIME,
    "matroska": _MATROSKA._replace(
        endings=(".mkv",),
        video="h264",
        audio="ac3",
        audio_encoder="aac",
        subtitle_encoder="copy",
        listed=(*_COMMON, "prores_ks", "ffv1"),
        listed_audio=("aac", "mp3", "opus", "flac", "pcm_s16le", "pcm_s24le", "pcm_f32le"),
    ),
    "webm": _MATROSKA._replace(
        endings=(".webm",),
        video="vp9",
        audio="opus",
        encoder="libvpx-vp9",
        subtitle_encoder="webvtt",
        listed=("libvpx-vp9", "libsvtav1", "libaom-av1"),
        listed_audio=("opus",),
        played_endings=(".webm",),
    ),
    # It counts hundredths of a second, and a delay has 16 bits. All browsers show a frame of less than 1/50 s for 1/10.
    # By default, FFmpeg 5.1 reads frames of 10 ms as frames of 100 ms, and libav doesn't.
    "gif": Container(
        reading=("-min_delay", "1"),
        endings=(".gif",),
        video="gif",
        listed=("gif",),
        holds_times=True,
        least_step_s=Fraction(1, 100),
        longest_step_s=Fraction(0xFFFF, 100),
        most_fps=100,
        slow_fps=50,
    ),
    "image2": Container(
        has_patterns=True, endings=(".jpg", ".png"), video="mjpeg", are_images=True, listed=("png", "mjpeg")
    ),
    # Chosen: FFmpeg's own defaults for the audio of these are Vorbis, MP3, MP2 and AMR. Measured with 5.1 and 9.0: in
    # AVI and NUT, AAC is as exactly in time with the picture as the default is.
    **dict.fromkeys(("3g2", "3gp"), _AAC),
    "nut": _AAC._replace(has_index=True, may_seek=True, keeps_times=True),
    "mpegts": _AAC._replace(may_seek=True, seeks_by_byte=True, protocols=("udp", "tcp", "srt", "rist")),
    "avi": _AAC._replace(may_seek=True, counts_frames=True, times_sound=False, completes_header=True),
    # RTMP carries nothing but FLV (Adobe's specification, 6.1).
    "flv": _AAC._replace(
        states_bytes=True,
        may_seek=True,
        tells_length=True,
        tells_sound=True,
        protocols=("rtmp", "rtmps", "rtmpt", "rtmpts", "rtmpe", "rtmpte"),
    ),
    "tee": _AAC._replace(is_list=True),
    **dict.fromkeys(("mxf_opatom", "wtv"), Container(completes_header=True)),
    "ogg": Container(
        may_seek=True, drops_damage=True, counts_from_file=True, has_pages=True, encoder="libtheora"
    ),
    "ogv": Container(encoder="libtheora"),
    "asf": Container(may_seek=True, mistimed=("flac",)),
    "mpeg": Container(may_seek=True, may_lack_times=True, guesses_length=True),
    "mxf": Container(may_seek=True, tells_length=True),
    **dict.fromkeys(("aiff", "au"), Container(tells_sound=True, counts_samples=True)),
    **dict.fromkeys(("caf", "tta", "wv"), _SOUND),
    "mp3": _SOUND._replace(guesses_sound=True),
    "flac": _SOUND._replace(drops_damage=True),
    "wav": Container(may_lack_length=True),
    **dict.fromkeys(("ass", "srt", "webvtt"), Container(is_text=True)),
    "rtsp": Container(leads_elsewhere=True, protocols=("rtsp",)),
    **dict.fromkeys(
        ("dash", "hls"),
        Container(leads_elsewhere=True, segment_endings=(".aac", ".m4s", ".mp4", ".ts", ".webm")),
    ),
    **dict.fromkeys(
        ("applehttp", "avisynth", "concat", "dvdvideo", "imf", "rtp", "sap", "sdp", "vapoursynth", "vobsub"),
        Container(leads_elsewhere=True),
    ),
    "webm_dash_manifest": Container(leads_elsewhere=True),
    "fifo": Container(opens_one=True),
    "apng": Container(needs_seeking=True),
    "avif": Container(needs_seeking=True, is_read=False),
    "webp": Container(needs_seeking=True, is_read=False),
    **dict.fromkeys(("data", "image2pipe", "null"), Container(is_read=False)),
}
#: Names of demuxers for files that lead to other files, or that are scripts.
LEADING_ELSEWHERE = frozenset(name for name, one in _CONTAINERS.items() if one.leads_elsewhere)
#: The containers of streams, by their protocols.
OF_PROTOCOLS = {protocol: name for name, one in _CONTAINERS.items() for protocol in one.protocols}


def known(names: str) -> Container:
    """The record of a container by FFmpeg's name of its muxer, or names of its demuxer, such as ``matroska,webm``."""
    return _CONTAINERS.get(names.partition(",")[0], _OTHER)


def listed() -> dict[str, Container]:
    """The containers for which an encoder is listed, by FFmpeg's names."""
    return {name: one for name, one in _CONTAINERS.items() if one.listed}


def playing(ending: str) -> str | None:
    """The container that browsers play in files with this ending, by FFmpeg's name; None if they don't."""
    return next((name for name, one in _CONTAINERS.items() if ending in one.played_endings), None)


class Muxer(NamedTuple):
    """What libav says of a container that it writes.

    Attributes:
        name: FFmpeg's name.
        video: the codec that it gets by default, by FFmpeg's name; None if it has no video, or any.
        audio: the same for sound.
        is_several_files: it opens files by itself, whose names follow from the output's.
    """

    name: str
    video: str | None
    audio: str | None
    is_several_files: bool = False

    @property
    def holds_sound(self) -> bool:
        """Whether it has a place for sound, as pictures and streams of one codec have not."""
        return self.audio is not None or self.video is None


# Without the 0.1 s that importing libav takes.
_USUAL = {
    ending: Muxer(name, one.video, one.audio) for name, one in _CONTAINERS.items() for ending in one.endings
}


def of_ending(ending: str) -> Muxer | None:
    """The container that FFmpeg chooses for a name with this ending (``.mkv``); None if there is none."""
    return _USUAL.get(ending) or _asked(f"name{ending}", None)


def of_format(name: str) -> Muxer | None:
    """The container of this name of FFmpeg's; None if libav does not write it."""
    return next((one for one in _USUAL.values() if one.name == name), None) or _asked("", name)


@cache
def _asked(path: str, name: str | None) -> Muxer | None:
    import av  # where it is needed

    try:
        with av.open(path, "w", format=name) as output:  # creates no file before it has a header
            codecs = (output.default_video_codec, output.default_audio_codec)
            video, audio = (None if one == "none" else one for one in codecs)
            form: Any = output.format
            # Those that write pictures, or nothing at all, open files by themselves as well, but get no times.
            has_times = not form.flags & av.format.Flags.no_timestamps.value
            is_several = form.no_file and has_times and not known(form.name).opens_one
            return Muxer(form.name, video, audio, is_several)
    except ValueError:
        return None
