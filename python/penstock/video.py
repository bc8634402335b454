"""What `penstock.Encoder`, `penstock.Decoder` and `penstock.FanOut` take and return: settings, facts and results.

- Settings: `Colors` with `MasteringDisplay` and `ContentLight`, `AudioFile` and `AudioTrack`,
  `EncoderSettings`, `DecoderSettings`.
- Facts of a file, as `penstock.probe` returns them: `MediaInfo` with `VideoInfo`, `AudioInfo`, `SubtitleInfo` and
  `Chapter`.
- Results: `VideoFrame`, `EncodeReport`, `EncoderStats`, `DecoderStats`, `OutputReport` with `DroppedFrame`.
- `prefetch` opens decoders ahead, and `find_ffmpeg` says which program Penstock runs.
"""

from typing import TYPE_CHECKING

from penstock import _lazy

if TYPE_CHECKING:
    from penstock._ffmpeg.command.settings import (
        Colors,
        ContentLight,
        DecoderSettings,
        EncoderSettings,
        MasteringDisplay,
    )
    from penstock._ffmpeg.plan.sound import AudioFile, AudioTrack
    from penstock._ffmpeg.program.capabilities import find_ffmpeg
    from penstock._media.info import AudioInfo, Chapter, MediaInfo, SubtitleInfo, VideoInfo
    from penstock._media.prefetching import prefetch
    from penstock._media.video_frame import VideoFrame
    from penstock._reports import DecoderStats, DroppedFrame, EncodeReport, EncoderStats, OutputReport

__all__ = [
    "AudioFile",
    "AudioInfo",
    "AudioTrack",
    "Chapter",
    "Colors",
    "ContentLight",
    "DecoderSettings",
    "DecoderStats",
    "DroppedFrame",
    "EncodeReport",
    "EncoderSettings",
    "EncoderStats",
    "MasteringDisplay",
    "MediaInfo",
    "OutputReport",
    "SubtitleInfo",
    "VideoFrame",
    "VideoInfo",
    "find_ffmpeg",
    "prefetch",
]

if not TYPE_CHECKING:  # or type checkers would accept any name
    __getattr__, __dir__ = _lazy.attributes(
        __name__,
        names={
            **dict.fromkeys(
                ("Colors", "ContentLight", "DecoderSettings", "EncoderSettings", "MasteringDisplay"),
                "_ffmpeg.command.settings",
            ),
            **dict.fromkeys(("AudioFile", "AudioTrack"), "_ffmpeg.plan.sound"),
            "find_ffmpeg": "_ffmpeg.program.capabilities",
            **dict.fromkeys(
                ("AudioInfo", "Chapter", "MediaInfo", "SubtitleInfo", "VideoInfo"), "_media.info"
            ),
            "prefetch": "_media.prefetching",
            "VideoFrame": "_media.video_frame",
            **dict.fromkeys(
                ("DecoderStats", "DroppedFrame", "EncodeReport", "EncoderStats", "OutputReport"), "_reports"
            ),
        },
    )
