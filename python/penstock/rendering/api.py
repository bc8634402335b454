"""`render` and `map_video`, and their plans."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Literal, get_args

from penstock._common.messages import argument, warn
from penstock._encoding.encoder_options import EncoderOptions
from penstock._encoding.like import LOST, arguments_like_labels, arguments_like_picture, with_codec
from penstock._facts.frame_times import FrameTimes
from penstock._facts.probing import probe
from penstock._ffmpeg.command.arguments import checked_size
from penstock._ffmpeg.command.settings import check_choice
from penstock._native import _count
from penstock.rendering import planning
from penstock.rendering.code import Code
from penstock.rendering.engines import Engine
from penstock.rendering.engines.processes import Processes, cpus
from penstock.rendering.job import Job
from penstock.rendering.planning import Plan
from penstock.rendering.reports import RenderProgress, RenderReport
from penstock.rendering.source import Source
from penstock.rendering.storage import locked

#: A function that draws a frame, a class of such functions, or where one is: ``MODULE:NAME``, ``FILE.py:NAME``.
Scene = Callable[..., object] | str
EngineName = Literal["processes", "ray"]
Progress = bool | Callable[[RenderProgress], object]


def plan(
    scene: Scene,
    output: str | os.PathLike[str],
    *,
    frames: int | range,
    size: tuple[int, int],
    fps: int | float | Fraction,
    workers: int | None = None,
    chunk_frames: int | None = None,
    audio: str | os.PathLike[str] | None = None,
    storage: str | os.PathLike[str] | None = None,
    encoder_options: EncoderOptions | None = None,
    version: str | None = None,
) -> Plan:
    """Plans a render, for `render_chunk` and `assemble`. The arguments are those of `render`.

    ``Plan.to_json`` makes text for other machines. The text contains the scene: whoever can change it can run code on
    the machines that render it.

    Raises:
        ValueError, TypeError, OSError, EncoderError: as `render` does before the first frame.
    """
    if audio is not None and not probe(audio).audio:
        raise ValueError(f"audio={os.fspath(audio)!r} has no audio track")
    return planning.make_plan(
        os.fspath(output),
        frames=frames,
        size=size,
        fps=fps,
        workers=_workers(workers),
        chunk_frames=chunk_frames,
        encoder_options=encoder_options,
        code=Code.of(scene, version),
        source=None,
        audio=None if audio is None else os.fspath(audio),
        storage=None if storage is None else os.fspath(storage),
    )


def plan_video(
    function: Callable[..., object] | str | None,
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    size: tuple[int, int] | None = None,
    pixel_format: str = "rgb24",
    workers: int | None = None,
    chunk_frames: int | None = None,
    storage: str | os.PathLike[str] | None = None,
    encoder_options: EncoderOptions | None = None,
    version: str | None = None,
) -> Plan:
    """Plans a `map_video`, whose arguments these are, for `render_chunk` and `assemble`.

    Raises:
        ValueError, TypeError, OSError, EncoderError, DecoderError: as `map_video` does before the first frame.
    """
    if callable(source) or callable(output):
        raise TypeError("source and output must not be callable. Use map_video(function, source, output)")
    workers = _workers(workers)
    size = None if size is None else checked_size(size)
    media = probe(source)
    frames = FrameTimes.of(media)
    frames.check_distinct(media.path)
    lengths = planning.lengths_of(len(frames.times_s), chunk_frames, workers)
    given = with_codec(os.fspath(output), {"pixel_format": pixel_format, **(encoder_options or {})})
    arguments, lost = arguments_like_picture(frames.video, size, given)
    arguments = arguments_like_labels(media, arguments) | arguments
    for what in lost:
        warn(LOST.format(what))
    return planning.make_plan(
        os.fspath(output),
        frames=len(frames.times_s),
        size=(frames.video.width, frames.video.height) if size is None else size,
        fps=frames.rate,
        workers=workers,
        chunk_frames=chunk_frames,
        encoder_options=arguments,
        code=None if function is None else Code.of(function, version),
        source=Source.of(media.path, pixel_format, frames, lengths),
        audio=os.fspath(source) if media.audio else None,
        storage=None if storage is None else os.fspath(storage),
    )


def render(
    scene: Scene,
    output: str | os.PathLike[str],
    *,
    frames: int | range,
    size: tuple[int, int],
    fps: int | float | Fraction,
    engine: EngineName = "processes",
    workers: int | None = None,
    chunk_frames: int | None = None,
    audio: str | os.PathLike[str] | None = None,
    storage: str | os.PathLike[str] | None = None,
    resume: bool = True,
    version: str | None = None,
    progress: Progress = False,
    encoder_options: EncoderOptions | None = None,
    ray: Mapping[str, object] | None = None,
) -> RenderReport:
    """Renders a scene on many processes, or on the machines of a Ray cluster.

    ```python
    def scene(index, time_s, view):
        view[:] = index % 256

    penstock.render(scene, "out.mp4", frames=2400, size=(1920, 1080), fps=60)
    ```

    The frames are divided into chunks. Each chunk is drawn and encoded by one worker, in any order; the chunks are
    joined without encoding again. What is done is kept until the video is complete: after Ctrl-C or a failure, the same
    call goes on from there. A chunk whose worker dies, or that raises, is tried three times.

    Args:
        scene: a function ``(index, time_s, view) -> None`` that draws frame `index`, at ``index / fps`` seconds, into
            `view`, an array as of `Encoder.lease`. Or a class: each worker makes one object of it, without arguments,
            and calls that. Or the name of one of these, ``MODULE:NAME`` or ``FILE.py:NAME``. Any worker may draw any
            frame. The scene is pickled for the workers by cloudpickle.
        output: the path of the video. It takes this name when it is complete.
        frames: how many frames, or a range of their indices.
        size: width and height in pixels.
        fps: frames per second.
        engine: "processes" of this machine, or "ray".
        workers: how many at most; None takes one for each CPU that this process can keep busy (`penstock.cpu.usable`),
            or for Ray as many as the cluster has room for. FFmpeg gets each worker's share of the CPUs.
        chunk_frames: frames of a chunk, 3 at least; None takes 240, or fewer for a short video. The last chunks are
            shorter, so that nobody waits long for one.
        audio: a file whose first sound is added: from the time of the first frame, and no longer than the video. It is
            copied if the container takes it, else encoded. Samples (WAV) become AAC in MP4.
        storage: the folder of the chunks, or a URL that fsspec opens, that all workers reach; None is the folder
            ``OUTPUT.chunks``.
        resume: go on from the chunks of an earlier call with the same scene, frames, size, rate, encoder and FFmpeg.
            The scene is compared by its code and its values, and by the files of those modules of yours that it comes
            from or uses, and that these use. What such a module has read, such as a file or the environment, is not
            compared: name it in `version`, or give `resume=False`. Sets of objects (not of text, numbers, and tuples of
            them) may have another order in each process, so that such a scene is rendered anew.
        version: text by which the scene is compared in place of all that: change it with the scene.
        progress: True draws a bar on standard error; a callable is called with a `penstock.rendering.RenderProgress`
            about twice a second. On Ray, it takes a process of its own.
        encoder_options: more arguments of the chunks' `Encoder`, such as ``{"codec": "libx265", "crf": 20}``.
        ray: options of the tasks on Ray: ``num_cpus``, ``num_gpus``, ``resources``, ``memory``, ``accelerator_type``,
            ``label_selector``, ``scheduling_strategy``, ``runtime_env``. If this process is not connected to a cluster,
            Ray connects it to the one that it finds, or starts one here, which stays until ``ray.shutdown()``.

    Returns:
        What was delivered, and what each worker did.

    Raises:
        ValueError, TypeError: an argument is not possible, or chunks could not be joined: two passes, bounded rates.
        RenderError: another render writes the output now; a chunk failed three times, with the scene's exception or
            FFmpeg's words; or the joined video is not as it must be.
        EncoderError: FFmpeg was not found, or failed to join the chunks.
        OSError: the disk is full, for instance.
    """
    planned = plan(
        scene,
        frames=frames,
        size=size,
        fps=fps,
        output=output,
        workers=_planned_workers(engine, workers, ray),
        chunk_frames=chunk_frames,
        audio=audio,
        storage=storage,
        encoder_options=encoder_options,
        version=version,
    )
    return _run(planned, engine, workers, resume, progress, ray)


def map_video(
    function: Callable[..., object] | str | None,
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    size: tuple[int, int] | None = None,
    pixel_format: str = "rgb24",
    engine: EngineName = "processes",
    workers: int | None = None,
    chunk_frames: int | None = None,
    storage: str | os.PathLike[str] | None = None,
    resume: bool = True,
    version: str | None = None,
    progress: Progress = False,
    encoder_options: EncoderOptions | None = None,
    ray: Mapping[str, object] | None = None,
) -> RenderReport:
    """Applies a function to each frame of a video, on many processes or machines. The sound is copied once.

    The result has the source's colors, tags and chapters, unless `encoder_options` names others
    (``{"metadata": None}``).

    Each worker decodes its own range of frames, calls the function, and encodes. A variable rate stays: each frame
    keeps its time, in microseconds. `engine` and the arguments after it are as for `render`.

    Args:
        function: gets a `VideoFrame` and returns a frame, which may be the same; or a class, of which each worker makes
            one object to call. None encodes the frames as they are.
        source: the path of the video, which all workers reach.
        output: as for `render`.
        size: width and height of what `function` returns, in pixels; None is the size of the source.
        pixel_format: that of the frames that the function gets and returns. ``{"pixel_format": …}`` among the
            `encoder_options` is another one for what it returns.

    Raises:
        ValueError, TypeError, RenderError, EncoderError, OSError: as `render`.
        DecoderError: the source cannot be read, or is damaged.
    """
    planned = plan_video(
        function,
        source,
        output,
        size=size,
        pixel_format=pixel_format,
        workers=_planned_workers(engine, workers, ray),
        chunk_frames=chunk_frames,
        storage=storage,
        encoder_options=encoder_options,
        version=version,
    )
    return _run(planned, engine, workers, resume, progress, ray)


def _run(
    planned: Plan,
    engine: EngineName,
    workers: int | None,
    resume: bool,
    progress: Progress,
    ray: Mapping[str, object] | None,
) -> RenderReport:
    def start(planned: Plan) -> Engine:
        if engine == "processes":
            return Processes(planned, _workers(workers))
        from penstock.rendering.engines.ray import RayTasks

        return RayTasks(planned, workers, ray or {}, progress=progress is not False)

    with locked(planned.output):
        return Job(planned, resume=resume).run(start, progress)


def _planned_workers(engine: EngineName, workers: int | None, ray: Mapping[str, object] | None) -> int | None:
    """The number of workers that the chunks are planned for. Checks `engine` and `ray`."""
    check_choice("engine", engine, get_args(EngineName))
    if engine != "ray":
        if ray is not None:
            raise ValueError(
                f"ray options need {argument('engine', 'ray')}, not {argument('engine', engine)}"
            )
        return workers
    from penstock.rendering.engines.ray import check_options, room

    check_options(ray or {})
    return max(1, room(ray or {})) if workers is None else workers


def _workers(workers: int | None) -> int:
    return cpus() if workers is None else _count("workers", workers)
