"""The arguments of `render` and `map_video`, declared once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal, get_args

from penstock._common.command_line import CommandOption
from penstock._encoding.request import EncoderOptions
from penstock.rendering.reports import RenderProgress

EngineName = Literal["processes", "ray"]
Progress = bool | Callable[[RenderProgress], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneOptions:
    """What is drawn. ``make fmt`` writes parameters and ``Args:`` from these classes."""

    frames: Annotated[
        int | range,
        CommandOption(
            "--frames N|A:B",
            "Number of frames; or the index of the first frame and the index after the last: 120:240.",
        ),
    ]
    """number of frames, or a range of their indices."""
    size: Annotated[
        tuple[int, int], CommandOption("--size WIDTHxHEIGHT", "Width and height in pixels: 1920x1080.")
    ]
    """width and height in pixels."""
    fps: Annotated[
        int | float | Fraction, CommandOption("--fps RATE", "Frames per second: 60, 23.976 or 30000/1001.")
    ]
    """frames per second."""
    audio: Annotated[
        str | os.PathLike[str] | None,
        CommandOption("--audio FILE", "Add the audio of FILE, from the time of the first frame on."),
    ] = None
    """a file whose first audio track is added, from the time of the first frame to the end of the video. It is copied
    if the container accepts it, and otherwise encoded. PCM samples (WAV) become AAC in MP4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOptions:
    """What `map_video` reads, and how."""

    size: tuple[int, int] | None = None
    """width and height in pixels of the frames that `function` returns; None is the size of the source."""
    pixel_format: str = "rgb24"
    """pixel format of the frames that `function` gets and returns. If it returns another format, pass
    ``encoder_options={"pixel_format": …}``, too."""
    start: float | None = None
    """beginning of the part of the source that is read, as for `Decoder`."""
    end: float | None = None
    """its end, as for `Decoder`."""
    duration: float | None = None
    """its length, as for `Decoder`."""
    fps: int | float | Fraction | None = None
    """the fixed rate at which the source is read, as for `Decoder`. The result has that rate. None keeps each frame
    once, with its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOptions:
    """How frames are divided and encoded."""

    workers: Annotated[
        int | None,
        CommandOption(
            "--workers N",
            "Maximum number of workers. The default is one for each CPU, or as many as the cluster has room for.",
            least=1,
        ),
    ] = None
    """maximum number of workers. None is one for each CPU that this process can keep busy (`penstock.cpu.usable`); with
    Ray, as many as the cluster has room for. FFmpeg gets each worker's share of the CPUs. An `executor` needs a
    number."""
    chunk_frames: Annotated[
        int | None,
        CommandOption(
            "--chunk-frames N",
            "Frames of a chunk. The default is up to 240, with short ones first. The last chunks are shorter: each is "
            "half of an equal share of the frames that are left, so that the workers finish at about the same time.",
            least=1,
        ),
    ] = None
    """frames of a chunk, at least 3; None is up to 240, with short chunks first, so that an interruption keeps some of
    them. The last chunks are shorter, so that the workers finish at about the same time: each is half of an equal share
    of the frames that are left. With 2 workers, 240 frames in chunks of 30 make 14."""
    storage: Annotated[
        str | os.PathLike[str] | None,
        CommandOption(
            "--storage DIR|URL",
            "Folder of the chunks until the video is complete, or a URL that fsspec opens. All workers must reach it. "
            "The default is OUTPUT.chunks.",
        ),
    ] = None
    """folder of the chunks, or a URL that fsspec opens. All workers must reach it. None is the folder
    ``OUTPUT.chunks``."""
    encoder_options: EncoderOptions | None = None
    """more arguments of the chunks' `Encoder`, such as ``{"codec": "libx265", "crf": 20}``."""
    version: str | None = None
    """text that replaces the comparison of the scene or function, for `resume`: change it whenever you change the
    code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Who renders, which is no part of a plan."""

    engine: Annotated[
        EngineName | None,
        CommandOption(
            "--engine",
            "Where to render: processes of this machine, which is the default, or a Ray cluster.",
            choices=get_args(EngineName),
        ),
    ] = None
    """"processes" of this machine, which is the default, or "ray"."""
    ray: Annotated[
        Mapping[str, object] | None,
        CommandOption(
            "--ray NAME=JSON",
            'Resources of each worker on Ray: num_cpus=4, num_gpus=0.5, memory=8000000000, \'resources={"studio": '
            "1}', accelerator_type=A100, and other options of Ray's tasks. Values are JSON or text. May be repeated.",
            is_repeated=True,
        ),
    ] = None
    """options of the tasks on Ray: ``num_cpus``, ``num_gpus``, ``resources``, ``memory``, ``accelerator_type``,
    ``label_selector``, ``scheduling_strategy``, ``runtime_env``. If this process isn't connected to a cluster, Ray
    connects it to the one that it finds, or starts one here, which stays until ``ray.shutdown()``."""
    executor: Executor | None = None
    """your own `concurrent.futures.Executor`, in place of an `engine`: of threads, of processes, or of a cluster. It
    gets `workers` chunks at once. In a pool of threads, each thread makes its own object of a scene class. `progress`
    counts finished chunks only. An exception counts as a failure of the chunk. A broken executor ends the render.
    Ctrl-C cancels the chunks that wait, and returns when those that run have ended. The executor isn't shut down."""
    resume: bool = True
    """whether to continue from the chunks of an earlier call with the same scene, frames, size, rate, encoder and
    FFmpeg. The scene or function is compared by its code and its values, and by the files of your own modules that it
    comes from or uses, and that these use. Data that such a module has read, such as a file or the environment, isn't
    compared: name it in `version`, or pass `resume=False`. Sets of objects (except text, numbers, and tuples of them)
    may have another order in each process, so such a scene is rendered again."""
    progress: Progress = False
    """True draws a bar on standard error. A callable is called with a `penstock.rendering.RenderProgress` about twice a
    second. On Ray, it needs a process of its own."""
