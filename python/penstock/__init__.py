"""Penstock moves raw bytes between memory and file descriptors, off the caller's thread, and loses or tears none.

A caller hands a *buffer* to a `Writer`: ``write`` copies it, and ``submit`` borrows it and returns a ticket
(``results.Ticket``). A borrowed buffer is held by an *export*, so that it can be neither freed nor resized. It waits in
the bounded queue of its *stream*: the pipe, socket or file that the descriptor led to. A native thread, the stream's
*worker*, puts it there by one of three *transports*, without ever touching Python:

- ``write``: the kernel copies. For files, sockets, small pieces.
- ``staged``: the worker copies into pages that the pipe takes over. Faster, and right for every reader.
- ``zero-copy``: the pipe gets the buffer's own pages. The ticket ends when the reader has read them.

When a write has ended, its ticket is done and the buffer is the caller's again. When a stream fails, its next
call and its ``flush`` or ``close`` say so, with the bytes delivered and lost.

A `Reader` is the mirror: its worker reads frames of a fixed size ahead, into native memory that goes back to
it when the last view of a frame is dropped, and hands over whole ones only.

`relay` moves bytes from one descriptor to another, in the kernel where the two allow it, and `Tee`
copies one stream to many. A relay runs on its caller's thread; `pipes.start_relay` runs one on a native thread, as a
tee does. ``pipes`` and ``fifo`` have pipes to put between them, and ``results`` has what calls give back. A `Pipeline`
streams assets through native decompressors and other stages, each on threads of its own, to Python, to a descriptor, or
into buffers; ``pipeline`` has its parts. Every native thread takes a `cpu.ThreadPolicy`, the priority and CPUs to
request; ``cpu`` has the same for the calling thread, and the machine's topology.

`Encoder` starts an FFmpeg and writes frames to it with a `Writer`. `Decoder` reads frames from an FFmpeg with a
`Reader`, and `AudioDecoder` the sound; `probe` says what is in a file. `FanOut` shares each frame among several
encoders and writers, and ``gl`` captures what OpenGL draws. `write_video` writes any iterable of frames in one
call, and `read_video` returns a video as one array. ``video`` has the settings and results of all these.
``images`` reads and writes image files. `render` and `map_video` divide a video into chunks for many processes or
machines; ``rendering`` has their steps. ``penstock.turbopipe`` is a drop-in for TurboPipe.
"""

from typing import TYPE_CHECKING

# Now, and not at the first write: a fork in another thread during that import would leave its lock taken in the child.
from penstock import _exit as _exit
from penstock import _lazy
from penstock._native import Reader, Tee, Writer, __version__
from penstock._relay import relay
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
    from penstock import images as images
    from penstock import pipeline as pipeline
    from penstock import pipes as pipes
    from penstock import rendering as rendering
    from penstock import results as results
    from penstock import turbopipe as turbopipe
    from penstock import video as video
    from penstock._fan_out import FanOut
    from penstock._ffmpeg.encoder import Encoder
    from penstock._media.audio import AudioDecoder
    from penstock._media.decoder import Decoder
    from penstock._media.probing import probe
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
    "images",
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
            "AudioDecoder": "_media.audio",
            "Decoder": "_media.decoder",
            "Encoder": "_ffmpeg.encoder",
            "FanOut": "_fan_out",
            "Pipeline": "_pipeline",
            "map_video": "rendering.api",
            "probe": "_media.probing",
            "read_video": "_whole_videos",
            "render": "rendering.api",
            "write_video": "_whole_videos",
        },
    )
