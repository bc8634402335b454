"""Settings, facts and results of video: the types that encoders, decoders and fan-outs take and return.

`penstock.Encoder`, `penstock.Decoder`, `penstock.AudioDecoder`, `penstock.FanOut` and `penstock.probe` are not here.

- Write audio: `AudioTrack` for samples that you compute (``Encoder.write_audio``), `AudioFile` for a file.
- Write colors: `Colors`, and `Colors.MasteringDisplay` and `Colors.ContentLight` for HDR.
- Choose an FFmpeg, the length of the queue, priorities and timeouts: `EncoderSettings`, `DecoderSettings`.
  `find_ffmpeg` returns the FFmpeg that runs.
- Facts about a file, from `penstock.probe` and ``Decoder.file``: a `MediaInfo`, with a `MediaInfo.Video`,
  `MediaInfo.Audio` or `MediaInfo.Subtitle` for each stream, and a `MediaInfo.Chapter` for each chapter.
- A decoded frame: `VideoFrame`, an array with ``index`` and ``time_s``. `prefetch` opens the decoders of many files
  ahead.
- The result of a video: `EncodeReport`, from ``Encoder.close`` and `penstock.write_video`; `OutputReport`, with a
  `OutputReport.DroppedFrame` for each dropped frame, from ``FanOut.close``.
- Progress while it runs: `EncoderStats`, `DecoderStats`, `DecoderEngine`.
"""

from typing import TYPE_CHECKING

from penstock._common import lazy as _lazy

if TYPE_CHECKING:
    from penstock._common.reports import (
        DecoderEngine,
        DecoderStats,
        EncodeReport,
        EncoderStats,
        OutputReport,
    )
    from penstock._decoding.prefetching import prefetch
    from penstock._decoding.video_frame import VideoFrame
    from penstock._encoding.sound import AudioFile, AudioTrack
    from penstock._facts.info import MediaInfo
    from penstock._ffmpeg.command.settings import (
        Colors,
        DecoderSettings,
        EncoderSettings,
    )
    from penstock._ffmpeg.program.capabilities import find_ffmpeg

__all__ = [
    "AudioFile",
    "AudioTrack",
    "Colors",
    "DecoderEngine",
    "DecoderSettings",
    "DecoderStats",
    "EncodeReport",
    "EncoderSettings",
    "EncoderStats",
    "MediaInfo",
    "OutputReport",
    "VideoFrame",
    "find_ffmpeg",
    "prefetch",
]

if not TYPE_CHECKING:  # or type checkers would accept any name
    __getattr__, __dir__ = _lazy.attributes(
        __name__,
        names={
            **dict.fromkeys(
                ("Colors", "DecoderSettings", "EncoderSettings"),
                "_ffmpeg.command.settings",
            ),
            **dict.fromkeys(("AudioFile", "AudioTrack"), "_encoding.sound"),
            "find_ffmpeg": "_ffmpeg.program.capabilities",
            "MediaInfo": "_facts.info",
            "prefetch": "_decoding.prefetching",
            "VideoFrame": "_decoding.video_frame",
            **dict.fromkeys(
                (
                    "DecoderEngine",
                    "DecoderStats",
                    "EncodeReport",
                    "EncoderStats",
                    "OutputReport",
                ),
                "_common.reports",
            ),
        },
    )
