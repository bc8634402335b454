"""The methods: ours and the rivals."""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from benchmarks.decode.jobs import (
    BATCH_FRAMES,
    BOUND,
    LARGE_PIPE_BYTES,
    PICKED_STANDARD,
    PIPE_STANDARD,
    SAMPLES_STANDARD,
    STANDARD,
    Job,
)
from benchmarks.harness.content import Frame
from benchmarks.harness.ffmpeg import start
from benchmarks.harness.isolated import Task
from benchmarks.harness.methods import Methods
from benchmarks.harness.results import CannotDoError
from penstock import Decoder, Reader
from penstock.video import DecoderSettings, prefetch

# Each is an iterator of arrays, and has ended everything it started when it is exhausted or closed. Each is used as its
# own documentation shows, with the options that make it faster. An array is the caller's until the next one is asked
# for. Some methods give the same array again and again.

#: The argument of every method. Its source is the video, or a folder of videos; for a pipe, the number of its read end,
#: which the method closes.
Target: TypeAlias = Task[Job]

METHODS = Methods()
QUICK_ONES = ("survey", "file", "busy", "clips")
of_file = partial(METHODS.add, serves=(*QUICK_ONES, "batches", "first"))
of_survey = partial(METHODS.add, serves=("survey",))
of_clips_too = partial(METHODS.add, serves=("survey", "clips", "first"))
of_clips = partial(METHODS.add, serves=("clips",))
of_batches = partial(METHODS.add, serves=("batches",))
of_pipe = partial(METHODS.add, serves=("pipe",))
of_picked = partial(METHODS.add, serves=("picked",))
of_samples = partial(METHODS.add, serves=("samples", "windows"))


def clips_in(folder: str) -> list[str]:
    """The files of a job with several."""
    return sorted(str(path) for path in Path(folder).iterdir())


def read_into_one(file: IO[bytes], shape: tuple[int, int, int]) -> Iterator[Frame]:
    frame = np.empty(shape, np.uint8)
    # A buffered file reads so much at once into the array itself.
    while file.readinto(frame.data) == frame.nbytes:  # type: ignore[attr-defined]
        yield frame


def pyav(target: Target, thread_type: str | None = None) -> Iterator[Frame]:
    """``decode`` and ``to_ndarray``, as its documentation begins."""
    width, height = target.job.scaled_to or (None, None)
    with import_module("av").open(target.source) as container:
        if thread_type is not None:
            container.streams.video[0].thread_type = thread_type
        for frame in container.decode(video=0):
            yield frame.to_ndarray(format="rgb24", width=width, height=height, interpolation="BICUBIC")


# With threads for frames, the first frame waits for several packets.
METHODS.add("pyav", needs=("av",), own_ffmpeg=True, serves=("survey", "first"))(pyav)
THREADED = "The same with threads for frames and slices"
of_file(STANDARD, "rival", THREADED, needs=("av",), own_ffmpeg=True)(partial(pyav, thread_type="AUTO"))


@of_file("opencv", needs=("cv2",), pixel_format="bgr24", own_ffmpeg=True)
def opencv(target: Target) -> Iterator[Frame]:
    """``VideoCapture.read``, which gives BGR, on the FFmpeg of its wheel."""
    import cv2

    capture = cv2.VideoCapture(target.source, cv2.CAP_FFMPEG)
    try:
        # read fills this array instead of allocating one.
        frame = np.empty((target.job.height, target.job.width, 3), np.uint8)
        if not capture.read(frame)[0]:
            raise CannotDoError("its FFmpeg cannot decode this file")
        yield _scaled(frame, target.job)
        while capture.read(frame)[0]:
            yield _scaled(frame, target.job)
    finally:
        capture.release()


def _scaled(frame: Frame, job: Job) -> Frame:
    """In the size of the job. OpenCV's bicubic looks at 4 × 4 pixels however much it shrinks; FFmpeg's at all."""
    import cv2

    return cv2.resize(frame, job.scaled_to, interpolation=cv2.INTER_CUBIC) if job.scaled_to else frame


@of_survey("opencv-rgb", needs=("cv2",), own_ffmpeg=True)
def opencv_rgb(target: Target) -> Iterator[Frame]:
    """The same, and ``cvtColor``."""
    import cv2

    rgb = np.empty(target.job.shape, np.uint8)
    for frame in opencv(target):
        yield cv2.cvtColor(frame, cv2.COLOR_BGR2RGB, dst=rgb)


@of_clips_too("decord", needs=("decord",), own_ffmpeg=True)
def decord(target: Target) -> Iterator[Frame]:
    """``VideoReader``, one frame after another: its batches are no faster."""
    import decord

    for frame in decord.VideoReader(target.source, ctx=decord.cpu(0), num_threads=0):
        yield frame.asnumpy()


@of_clips_too("torchcodec", needs=("torchcodec",), own_ffmpeg=True)
def torchcodec(target: Target) -> Iterator[Frame]:
    """``VideoDecoder``, one frame after another, with as many threads as libav chooses."""
    decoders = import_module("torchcodec.decoders")
    for frame in decoders.VideoDecoder(target.source, dimension_order="NHWC", num_ffmpeg_threads=0):
        yield frame.numpy()


@of_survey("stdout.readinto")
def stdout_readinto(target: Target) -> Iterator[Frame]:
    """FFmpeg's rawvideo, by readinto into one array: no bytes object for a frame, and no copy."""
    scale = ("-vf", f"scale={target.job.shape[1]}:{target.job.shape[0]}") if target.job.scaled_to else ()
    output = [*scale, "-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"]
    with start(target.ffmpeg, "-i", target.source, *output, stdin=False, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        yield from read_into_one(child.stdout, target.job.shape)


@of_survey("imageio-ffmpeg", needs=("imageio_ffmpeg",))
def imageio_ffmpeg(target: Target) -> Iterator[Frame]:
    """``read_frames``, which gives the metadata and then bytes, and ``np.frombuffer``."""
    import imageio_ffmpeg

    frames = imageio_ffmpeg.read_frames(target.source, pix_fmt="rgb24")
    next(frames)
    for frame in frames:
        yield np.frombuffer(frame, np.uint8).reshape(target.job.shape)


@of_survey("ffmpegcv", needs=("ffmpegcv",))
def ffmpegcv(target: Target) -> Iterator[Frame]:
    """``VideoCapture`` for rgb24, on the FFmpeg that is first on ``PATH``."""
    import ffmpegcv

    with ffmpegcv.VideoCapture(target.source, pix_fmt="rgb24") as capture:
        while True:
            success, frame = capture.read()
            if not success:
                return
            yield frame


#: PyAV is what ours decodes with: its import is no part of the first frame, nor of the memory.
OURS: dict[str, Any] = {"kind": "ours", "needs": ("av",), "own_ffmpeg": True}


@of_file("penstock", **OURS)
def penstock_decoder(target: Target, pixel_format: str = "rgb24", **how: Any) -> Iterator[Frame]:
    """`penstock.Decoder`, frame by frame."""
    with Decoder(target.source, pixel_format=pixel_format, size=target.job.scaled_to, **how) as decoder:
        yield from decoder


BGR = "bgr24"
BGR_SUMMARY = "The same for bgr24"
of_survey("penstock-bgr", summary=BGR_SUMMARY, pixel_format=BGR, **OURS)(
    partial(penstock_decoder, pixel_format=BGR)
)


@METHODS.add("penstock-program", "ours", needs=("av",), serves=("survey", "busy"))
def penstock_program(target: Target) -> Iterator[Frame]:
    """`penstock.Decoder` with settings that name an FFmpeg program, which then decodes."""
    yield from penstock_decoder(target, settings=DecoderSettings(ffmpeg=target.ffmpeg))


@of_batches("penstock-batches", **OURS)
def penstock_batches(target: Target, out: Frame | None = None) -> Iterator[Frame]:
    """`Decoder.batch` of consecutive frames, one batch after another."""
    with Decoder(target.source) as decoder:
        for first in range(0, target.job.frames, BATCH_FRAMES):
            numbers = range(first, min(first + BATCH_FRAMES, target.job.frames))
            yield from decoder.batch(numbers, None if out is None else out[: len(numbers)])


@of_batches("penstock-batches-out", **OURS)
def penstock_batches_out(target: Target) -> Iterator[Frame]:
    """The same into one array."""
    yield from penstock_batches(target, np.empty((BATCH_FRAMES, *target.job.shape), np.uint8))


@of_batches("penstock-fresh-memory", **OURS)
def penstock_fresh_memory(target: Target) -> Iterator[Frame]:
    """`penstock`, after memory for two batches was written to: what batches cost that their caller holds."""
    fresh = [
        mmap.mmap(-1, BATCH_FRAMES * math.prod(target.job.shape), flags=mmap.MAP_PRIVATE) for _ in range(2)
    ]
    for memory in fresh:
        memory.madvise(mmap.MADV_HUGEPAGE)
        np.frombuffer(memory, np.uint8)[:: mmap.PAGESIZE] = 1
    yield from penstock_decoder(target)


@of_clips("penstock.prefetch", **OURS)
def penstock_prefetch(target: Target) -> Iterator[Frame]:
    """`penstock.video.prefetch`, which opens two files ahead."""
    for decoder in prefetch(clips_in(target.source)):
        yield from decoder


@METHODS.add(BOUND, "bound", needs=("av",), own_ffmpeg=True, serves=QUICK_ONES)
def pyav_no_conversion(target: Target) -> Iterator[Any]:
    """PyAV decodes with threads for frames and slices, and its frames are thrown away."""
    with import_module("av").open(target.source) as container:
        container.streams.video[0].thread_type = "AUTO"
        yield from container.decode(video=0)


@of_picked(PICKED_STANDARD, needs=("cv2",), own_ffmpeg=True)
def opencv_seeks(target: Target) -> Iterator[Frame]:
    """``CAP_PROP_POS_FRAMES``, ``read`` and ``cvtColor``, for each frame."""
    import cv2

    capture = cv2.VideoCapture(target.source, cv2.CAP_FFMPEG)
    for number in target.job.numbers:
        capture.set(cv2.CAP_PROP_POS_FRAMES, number)
        yield cv2.cvtColor(capture.read()[1], cv2.COLOR_BGR2RGB)
    capture.release()


@of_picked("pyav-seeks", needs=("av",), own_ffmpeg=True)
def pyav_seeks(target: Target) -> Iterator[Frame]:
    """By hand: ``seek`` to the frame's time at a constant rate, and ``decode`` up to it, with all threads."""
    with import_module("av").open(target.source) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        step = 1 / (stream.average_rate * stream.time_base)
        for number in target.job.numbers:
            pts = stream.start_time + round(number * step)
            container.seek(pts, stream=stream)
            found = next(frame for frame in container.decode(stream) if frame.pts >= pts)
            yield found.to_ndarray(format="rgb24")


@of_picked("torchcodec-batch", needs=("torchcodec",), own_ffmpeg=True)
def torchcodec_batch(target: Target) -> Iterator[Frame]:
    """``VideoDecoder.get_frames_at``, whose index is exact."""
    decoders = import_module("torchcodec.decoders")
    decoder = decoders.VideoDecoder(
        target.source, dimension_order="NHWC", num_ffmpeg_threads=0, seek_mode="exact"
    )
    yield from decoder.get_frames_at(indices=target.job.numbers).data.numpy()


@of_picked("penstock-batch", **OURS)
def penstock_batch(target: Target) -> Iterator[Frame]:
    """`Decoder.batch`."""
    with Decoder(target.source) as decoder:
        yield from decoder.batch(target.job.numbers)


@of_picked("penstock-one-by-one", **OURS)
def penstock_one_by_one(target: Target) -> Iterator[Frame]:
    """``decoder[number]`` for each frame, in the given order."""
    with Decoder(target.source) as decoder:
        for number in target.job.numbers:
            yield decoder[number]


@of_samples(SAMPLES_STANDARD, needs=("cv2",), own_ffmpeg=True)
def opencv_samples(target: Target) -> Iterator[Frame]:
    """``CAP_PROP_POS_FRAMES`` for the first one, and ``grab`` for frames between."""
    import cv2

    for numbers in target.job.openings:
        capture = cv2.VideoCapture(target.source, cv2.CAP_FFMPEG)
        for sample in numbers:
            if sample[0]:
                capture.set(cv2.CAP_PROP_POS_FRAMES, sample[0])
            for number in range(sample[0], sample[-1] + 1):
                capture.grab()
                if number in sample:
                    frame = _scaled(capture.retrieve()[1], target.job)
                    yield cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
        capture.release()


@of_samples("pyav-samples", needs=("av",), own_ffmpeg=True)
def pyav_samples(target: Target) -> Iterator[Frame]:
    """By hand, as ``pyav-seeks``, with one seek for a sample."""
    width, height = target.job.scaled_to or (None, None)
    for numbers in target.job.openings:
        with import_module("av").open(target.source) as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            step = 1 / (stream.average_rate * stream.time_base)
            for sample in numbers:
                wanted = [stream.start_time + round(number * step) for number in sample]
                container.seek(wanted[0], stream=stream)
                frames = (frame for frame in container.decode(stream) if frame.pts in wanted)
                for frame in islice(frames, len(wanted)):
                    yield frame.to_ndarray(
                        format="rgb24", width=width, height=height, interpolation="BICUBIC"
                    )


@of_samples("decord-samples", needs=("decord",), own_ffmpeg=True)
def decord_samples(target: Target) -> Iterator[Frame]:
    """``VideoReader.get_batch``."""
    import decord

    width, height = target.job.scaled_to or (-1, -1)
    for numbers in target.job.openings:
        reader = decord.VideoReader(target.source, ctx=decord.cpu(0), width=width, height=height)
        for sample in numbers:
            yield from reader.get_batch(sample).asnumpy()


@of_samples("torchcodec-samples", needs=("torchcodec",), own_ffmpeg=True)
def torchcodec_samples(target: Target) -> Iterator[Frame]:
    """``VideoDecoder.get_frames_at``, which scales each frame."""
    job = target.job
    transforms = import_module("torchcodec.transforms")
    scaled = [transforms.Resize((job.shape[0], job.shape[1]))] if job.scaled_to else None
    for numbers in job.openings:
        decoder = import_module("torchcodec.decoders").VideoDecoder(
            target.source, dimension_order="NHWC", num_ffmpeg_threads=0, transforms=scaled
        )
        for sample in numbers:
            yield from decoder.get_frames_at(indices=sample).data.numpy()


@of_samples("spdl-samples", needs=("spdl.io",))
def spdl_samples(target: Target) -> Iterator[Frame]:
    """``demux_video``, which reads all packets, and ``sample_decode_video``, on the FFmpeg libraries of the system."""
    spdl = import_module("spdl.io")
    height, width, _ = target.job.shape
    scaled = f"scale={width}:{height}:flags=bicubic,format=rgb24"
    for numbers in target.job.openings:
        packets = spdl.demux_video(target.source)
        for sample in numbers:
            # Decoding takes the packets.
            frames = spdl.sample_decode_video(
                packets.clone(),
                sample,
                filter_desc=scaled,
                decode_config=spdl.decode_config(decoder_options={"threads": "0"}),
            )
            yield from spdl.to_numpy(spdl.convert_frames(frames))


@of_samples("penstock-samples", **OURS)
def penstock_samples(target: Target) -> Iterator[Frame]:
    """`Decoder.batch`."""
    for numbers in target.job.openings:
        with Decoder(target.source, size=target.job.scaled_to) as decoder:
            for sample in numbers:
                yield from decoder.batch(sample)


@of_pipe(PIPE_STANDARD)
def readinto(target: Target) -> Iterator[Frame]:
    """``readinto`` from a pipe of the default size."""
    with os.fdopen(int(target.source), "rb") as pipe:
        yield from read_into_one(pipe, target.job.shape)


@of_pipe("readinto-1MiB", "other")
def readinto_large(target: Target) -> Iterator[Frame]:
    """The same from a pipe enlarged to 1 MiB."""
    target.notes["capacity_bytes"] = fcntl.fcntl(int(target.source), fcntl.F_SETPIPE_SZ, LARGE_PIPE_BYTES)
    yield from readinto(target)


@of_pipe("penstock.Reader", "ours")
def penstock_reader(target: Target) -> Iterator[Frame]:
    """`penstock.Reader`, which reads ahead."""
    with (
        os.fdopen(int(target.source), "rb") as pipe,
        Reader(pipe, frame_bytes=target.job.frame_bytes) as reader,
    ):
        for frame in reader:
            yield np.asarray(frame).reshape(target.job.shape)
        stats = reader.stats
    for name in ("capacity_bytes", "caller_wait_s", "input_wait_s", "output_wait_s"):
        target.notes[name] = getattr(stats, name)
