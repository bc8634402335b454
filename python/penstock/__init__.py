"""Video I/O that doesn't hold up your loop and loses nothing unsaid, on a toolkit for bytes.

NumPy, ModernGL and PyTorch frames go to files and streams through FFmpeg, and come back, in order or by index. The
toolkit underneath moves bytes between memory, files, pipes and sockets.

Which one to use:

- Write a video: `write_video` takes all frames in one call. An `Encoder` takes frame after frame, with audio tracks,
  times, metadata and settings.
- Read a video: `read_video` returns one array. A `Decoder` returns frame after frame, or any frame by its number
  (``decoder[7]``) or its time (``decoder.frame_at(1.5)``). An `AudioDecoder` returns the audio. `probe` returns the
  facts about a file: its streams, sizes, frame rates, colors.
- Change a video: ``Encoder.like(decoder, "out.mp4")`` keeps its audio, times, metadata and colors. `map_video` does it
  on many processes or machines, and `render` draws a scene there.
- Record: a `FanOut` writes each frame to one or several encoders and writers. An output with ``when_full="drop"`` never
  holds up your loop, and reports the frames that it dropped. `gl.Capture` reads the pictures that OpenGL draws.
- Write bytes: a `Writer` is a file for ``pickle``, Pillow and the like, on a pipe, a socket or a file. ``write`` copies
  the data. ``submit`` borrows its memory until the ticket that it returns is done.
- Read frames from a program: a `Reader` reads buffers of a fixed size ahead.
- Move bytes between two descriptors: `relay`, or `pipes.start_relay` on a thread of its own. `Tee` copies a stream to
  many.
- Load compressed assets: a `Pipeline` reads, decompresses and checks files on many threads.

Modules:

- ``penstock.video``: settings, facts of files and results for encoders and decoders, such as `video.AudioTrack`.
- ``penstock.rendering``: the steps of `render` and `map_video`, for your own scheduler.
- ``penstock.results``: the results of writers, readers, relays and tees: tickets, statistics, reports.
- ``penstock.pipes``, ``penstock.fifo``: pipes and named pipes, as Python files.
- ``penstock.pipeline``: the source, the stages and the sink of a `Pipeline`.
- ``penstock.gl``: OpenGL. ``penstock.cpu``: priorities and CPUs of threads.
- ``penstock.turbopipe``: a drop-in for TurboPipe.
- The errors are here, and `PenstockError` is the base of all.

A native thread moves the bytes of each stream, without the GIL. It uses one of three *transports*:

- ``write``: the kernel copies. For files, sockets and small pieces.
- ``staged``: the thread copies into pages that the pipe takes over. Faster, and right for every reader.
- ``zero-copy``: the pipe gets the buffer's own pages, until the reader has read them.

If a stream fails, the next call and ``flush`` or ``close`` raise, with the number of bytes delivered and lost.
"""

from typing import TYPE_CHECKING

# Now, and not at the first write: a fork in another thread during that import would leave its lock taken in the child.
from penstock._common import exits as _exits  # noqa: F401
from penstock._common import lazy as _lazy
from penstock._native import Reader, Tee, Writer, __version__
from penstock._streams.relay import relay
from penstock.errors import (
    BrokenStreamError,
    ClosedError,
    DecoderError,
    EncoderError,
    FFmpegError,
    FFmpegWarning,
    PenstockError,
    PipelineError,
    RenderError,
    StalledError,
    TruncatedStreamError,
)

if TYPE_CHECKING:
    from penstock import cpu as cpu
    from penstock import fifo as fifo
    from penstock import gl as gl
    from penstock import pipeline as pipeline
    from penstock import pipes as pipes
    from penstock import rendering as rendering
    from penstock import results as results
    from penstock import turbopipe as turbopipe
    from penstock import video as video
    from penstock._decoding.audio import AudioDecoder
    from penstock._decoding.decoder import Decoder
    from penstock._encoding.encoder import Encoder
    from penstock._facts.probing import probe
    from penstock._fan_out.fan_out import FanOut
    from penstock._pipeline import Pipeline
    from penstock._whole_videos import read_video, write_video
    from penstock.rendering.api import map_video, render

__all__ = [
    "AudioDecoder",
    "BrokenStreamError",
    "ClosedError",
    "Decoder",
    "DecoderError",
    "Encoder",
    "EncoderError",
    "FFmpegError",
    "FFmpegWarning",
    "FanOut",
    "PenstockError",
    "Pipeline",
    "PipelineError",
    "Reader",
    "RenderError",
    "StalledError",
    "Tee",
    "TruncatedStreamError",
    "Writer",
    "__version__",
    "map_video",
    "probe",
    "read_video",
    "relay",
    "render",
    "write_video",
]

_LAZY_MODULES = (
    "cpu",
    "fifo",
    "gl",
    "pipeline",
    "pipes",
    "rendering",
    "results",
    "turbopipe",
    "video",
)

if not TYPE_CHECKING:  # which would take every name for one of ours
    __getattr__, __dir__ = _lazy.attributes(
        __name__,
        _LAZY_MODULES,
        {
            "AudioDecoder": "_decoding.audio",
            "Decoder": "_decoding.decoder",
            "Encoder": "_encoding.encoder",
            "FanOut": "_fan_out.fan_out",
            "Pipeline": "_pipeline",
            "map_video": "rendering.api",
            "probe": "_facts.probing",
            "read_video": "_whole_videos",
            "render": "rendering.api",
            "write_video": "_whole_videos",
        },
    )
