"""`render` and `map_video`, and their plans."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from fractions import Fraction
from typing import get_args

from penstock._common.control_groups import whole_cpus
from penstock._common.keywords import explains
from penstock._common.messages import argument, warn
from penstock._decoding.decoder import Decoder
from penstock._decoding.frame_times import FrameTimes
from penstock._decoding.options import part_of
from penstock._encoding.like import (
    LOST,
    arguments_like_labels,
    arguments_like_picture,
    arguments_like_timecode,
    lost_by_map,
    with_codec,
)
from penstock._encoding.request import EncoderOptions
from penstock._facts.probing import probe
from penstock._ffmpeg.command.arguments import checked_size, frame_rate
from penstock._ffmpeg.command.settings import check_choice
from penstock._native import _count
from penstock._platform.refusals import refuse
from penstock.rendering import planning
from penstock.rendering.code import Code
from penstock.rendering.engines.executor import Engine, check_executor
from penstock.rendering.engines.processes import Processes
from penstock.rendering.engines.work import Work
from penstock.rendering.options import (
    ChunkOptions,
    EngineName,
    MapOptions,
    Progress,
    RunOptions,
    SceneOptions,
)
from penstock.rendering.plan_run import PlanRun
from penstock.rendering.planning import Plan
from penstock.rendering.reports import RenderReport
from penstock.rendering.source import SourceVideo
from penstock.rendering.storage import locked

#: A function that draws a frame, a class of such functions, or where one is: ``MODULE:NAME``, ``FILE.py:NAME``.
Scene = Callable[..., object] | str

_explained = explains(
    "the others by their names, such as workers=2",
    **{
        name: f"encoder_options={{{name!r}: …}}"
        for name in EncoderOptions.__annotations__
        if name not in planning.OWN_ARGUMENTS
    },
)


@_explained
def plan(
    scene: Scene,
    output: str | os.PathLike[str],
    *,
    frames: int | range,
    size: tuple[int, int],
    fps: int | float | Fraction,
    audio: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    chunk_frames: int | None = None,
    storage: str | os.PathLike[str] | None = None,
    encoder_options: EncoderOptions | None = None,
    version: str | None = None,
) -> Plan:
    """Plans a render, for `render_chunk` and `assemble`. The arguments are those of `render`.

    ``Plan.to_json`` makes text for other machines. The text contains the scene: anyone who can change it can run code
    on the machines that render it.

    Raises:
        ValueError, TypeError, OSError, EncoderError: as `render` raises before the first frame.
    """
    options = SceneOptions(
        frames=frames,
        size=size,
        fps=fps,
        audio=audio,
    )
    chunks = ChunkOptions(
        workers=workers,
        chunk_frames=chunk_frames,
        storage=storage,
        encoder_options=encoder_options,
        version=version,
    )
    return _scene_plan(scene, output, options, chunks, _workers(workers))


@_explained
def plan_video(
    function: Callable[..., object] | str | None,
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    size: tuple[int, int] | None = None,
    pixel_format: str = "rgb24",
    start: float | None = None,
    end: float | None = None,
    duration: float | None = None,
    fps: int | float | Fraction | None = None,
    workers: int | None = None,
    chunk_frames: int | None = None,
    storage: str | os.PathLike[str] | None = None,
    encoder_options: EncoderOptions | None = None,
    version: str | None = None,
) -> Plan:
    """Plans a `map_video`, for `render_chunk` and `assemble`. The arguments are those of `map_video`.

    Raises:
        ValueError, TypeError, OSError, EncoderError, DecoderError: as `map_video` raises before the first frame.
    """
    options = MapOptions(
        size=size,
        pixel_format=pixel_format,
        start=start,
        end=end,
        duration=duration,
        fps=fps,
    )
    chunks = ChunkOptions(
        workers=workers,
        chunk_frames=chunk_frames,
        storage=storage,
        encoder_options=encoder_options,
        version=version,
    )
    return _map_plan(function, source, output, options, chunks, _workers(workers))


@_explained
def render(
    scene: Scene,
    output: str | os.PathLike[str],
    *,
    frames: int | range,
    size: tuple[int, int],
    fps: int | float | Fraction,
    audio: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    chunk_frames: int | None = None,
    storage: str | os.PathLike[str] | None = None,
    encoder_options: EncoderOptions | None = None,
    version: str | None = None,
    engine: EngineName | None = None,
    ray: Mapping[str, object] | None = None,
    executor: Executor | None = None,
    resume: bool = True,
    progress: Progress = False,
) -> RenderReport:
    """Renders a scene to a video on many processes, or on the machines of a Ray cluster.

    ```python
    def scene(index, time_s, view):
        view[:] = index % 256

    penstock.render(scene, "out.mp4", frames=2400, size=(1920, 1080), fps=60)
    ```

    The frames are divided into chunks. One worker draws and encodes each chunk, in any order. The chunks are joined
    without encoding again. Finished chunks are kept until the video is complete: after Ctrl-C or a failure, the same
    call continues from there. If the worker of a chunk dies, or the scene raises, the chunk is tried three times.

    Args:
        scene: a function ``(index, time_s, view) -> None`` that draws frame `index`, at ``index / fps`` seconds, into
            `view`, an array as `Encoder.lease` yields it. Or a class: each worker makes one object of it, without
            arguments, and calls the object. Or the name of a function or class, ``MODULE:NAME`` or ``FILE.py:NAME``.
            Any worker may draw any frame. `view` isn't cleared, so draw all of it. A frame may be drawn twice, into
            different arrays. cloudpickle pickles the scene for the workers.
        output: path of the video. The file appears there when it is complete.
        frames: number of frames, or a range of their indices.
        size: width and height in pixels.
        fps: frames per second.
        audio: a file whose first audio track is added, from the time of the first frame to the end of the video. It is
            copied if the container accepts it, and otherwise encoded. PCM samples (WAV) become AAC in MP4.
        workers: maximum number of workers. None is one for each CPU that this process can keep busy
            (`penstock.cpu.usable`); with Ray, as many as the cluster has room for. FFmpeg gets each worker's share of
            the CPUs. An `executor` needs a number.
        chunk_frames: frames of a chunk, at least 3; None is up to 240, with short chunks first, so that an interruption
            keeps some of them. The last chunks are shorter, so that the workers finish at about the same time: each is
            half of an equal share of the frames that are left. With 2 workers, 240 frames in chunks of 30 make 14.
        storage: folder of the chunks, or a URL that fsspec opens. All workers must reach it. None is the folder
            ``OUTPUT.chunks``.
        encoder_options: more arguments of the chunks' `Encoder`, such as ``{"codec": "libx265", "crf": 20}``.
        version: text that replaces the comparison of the scene or function, for `resume`: change it whenever you change
            the code.
        engine: "processes" of this machine, which is the default, or "ray".
        ray: options of the tasks on Ray: ``num_cpus``, ``num_gpus``, ``resources``, ``memory``, ``accelerator_type``,
            ``label_selector``, ``scheduling_strategy``, ``runtime_env``. If this process isn't connected to a cluster,
            Ray connects it to the one that it finds, or starts one here, which stays until ``ray.shutdown()``.
        executor: your own `concurrent.futures.Executor`, in place of an `engine`: of threads, of processes, or of a
            cluster. It gets `workers` chunks at once. In a pool of threads, each thread makes its own object of a scene
            class. `progress` counts finished chunks only. An exception counts as a failure of the chunk. A broken
            executor ends the render. Ctrl-C cancels the chunks that wait, and returns when those that run have ended.
            The executor isn't shut down.
        resume: whether to continue from the chunks of an earlier call with the same scene, frames, size, rate, encoder
            and FFmpeg. The scene or function is compared by its code and its values, and by the files of your own
            modules that it comes from or uses, and that these use. Data that such a module has read, such as a file or
            the environment, isn't compared: name it in `version`, or pass `resume=False`. Sets of objects (except text,
            numbers, and tuples of them) may have another order in each process, so such a scene is rendered again.
        progress: True draws a bar on standard error. A callable is called with a `penstock.rendering.RenderProgress`
            about twice a second. On Ray, it needs a process of its own.

    Returns:
        A report of the video, and of each worker.

    Raises:
        ValueError, TypeError: if an argument is impossible, or its chunks couldn't be joined: two passes, bounded bit
            rates.
        RenderError: if another render is writing the output; if a chunk failed three times, with the scene's exception
            or FFmpeg's message; or if the joined video is wrong.
        EncoderError: if FFmpeg isn't found, or failed to join the chunks.
        OSError: if the disk is full, for instance.
    """
    run = RunOptions(
        engine=engine,
        ray=ray,
        executor=executor,
        resume=resume,
        progress=progress,
    )
    options = SceneOptions(
        frames=frames,
        size=size,
        fps=fps,
        audio=audio,
    )
    chunks = ChunkOptions(
        workers=workers,
        chunk_frames=chunk_frames,
        storage=storage,
        encoder_options=encoder_options,
        version=version,
    )
    count, start_engine = _engine(run, workers)
    return _rendered(_scene_plan(scene, output, options, chunks, count), start_engine, run)


@_explained
def map_video(
    function: Callable[..., object] | str | None,
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    size: tuple[int, int] | None = None,
    pixel_format: str = "rgb24",
    start: float | None = None,
    end: float | None = None,
    duration: float | None = None,
    fps: int | float | Fraction | None = None,
    workers: int | None = None,
    chunk_frames: int | None = None,
    storage: str | os.PathLike[str] | None = None,
    encoder_options: EncoderOptions | None = None,
    version: str | None = None,
    engine: EngineName | None = None,
    ray: Mapping[str, object] | None = None,
    executor: Executor | None = None,
    resume: bool = True,
    progress: Progress = False,
) -> RenderReport:
    """Applies a function to each frame of a video, on many processes or machines, and copies the audio.

    The result keeps the source's colors, tags, chapters and best audio track, unless `encoder_options` overrides them
    (``{"metadata": None}``). It keeps the bit depth and chroma subsampling if the frames have as many bits. It begins
    with the first frame, and ends with the last one. If something is lost, you get an `FFmpegWarning`: other audio and
    video tracks, attached pictures, subtitles, the time before the first frame, or audio after the last one.

    Each worker decodes its own range of frames, calls the function, and encodes. A variable frame rate stays: each
    frame keeps its time, in microseconds.

    Args:
        function: a function that gets a `VideoFrame` and returns a frame, which may be the same. The frame's ``index``
            is its number in the part that is read, from 0. Or a class: each worker makes one object of it to call. None
            encodes the frames unchanged.
        source: path of the video. All workers must reach it.
        output: as for `render`.
        size: width and height in pixels of the frames that `function` returns; None is the size of the source.
        pixel_format: pixel format of the frames that `function` gets and returns. If it returns another format, pass
            ``encoder_options={"pixel_format": …}``, too.
        start: beginning of the part of the source that is read, as for `Decoder`.
        end: its end, as for `Decoder`.
        duration: its length, as for `Decoder`.
        fps: the fixed rate at which the source is read, as for `Decoder`. The result has that rate. None keeps each
            frame once, with its time.
        workers: maximum number of workers. None is one for each CPU that this process can keep busy
            (`penstock.cpu.usable`); with Ray, as many as the cluster has room for. FFmpeg gets each worker's share of
            the CPUs. An `executor` needs a number.
        chunk_frames: frames of a chunk, at least 3; None is up to 240, with short chunks first, so that an interruption
            keeps some of them. The last chunks are shorter, so that the workers finish at about the same time: each is
            half of an equal share of the frames that are left. With 2 workers, 240 frames in chunks of 30 make 14.
        storage: folder of the chunks, or a URL that fsspec opens. All workers must reach it. None is the folder
            ``OUTPUT.chunks``.
        encoder_options: more arguments of the chunks' `Encoder`, such as ``{"codec": "libx265", "crf": 20}``.
        version: text that replaces the comparison of the scene or function, for `resume`: change it whenever you change
            the code.
        engine: "processes" of this machine, which is the default, or "ray".
        ray: options of the tasks on Ray: ``num_cpus``, ``num_gpus``, ``resources``, ``memory``, ``accelerator_type``,
            ``label_selector``, ``scheduling_strategy``, ``runtime_env``. If this process isn't connected to a cluster,
            Ray connects it to the one that it finds, or starts one here, which stays until ``ray.shutdown()``.
        executor: your own `concurrent.futures.Executor`, in place of an `engine`: of threads, of processes, or of a
            cluster. It gets `workers` chunks at once. In a pool of threads, each thread makes its own object of a scene
            class. `progress` counts finished chunks only. An exception counts as a failure of the chunk. A broken
            executor ends the render. Ctrl-C cancels the chunks that wait, and returns when those that run have ended.
            The executor isn't shut down.
        resume: whether to continue from the chunks of an earlier call with the same scene, frames, size, rate, encoder
            and FFmpeg. The scene or function is compared by its code and its values, and by the files of your own
            modules that it comes from or uses, and that these use. Data that such a module has read, such as a file or
            the environment, isn't compared: name it in `version`, or pass `resume=False`. Sets of objects (except text,
            numbers, and tuples of them) may have another order in each process, so such a scene is rendered again.
        progress: True draws a bar on standard error. A callable is called with a `penstock.rendering.RenderProgress`
            about twice a second. On Ray, it needs a process of its own.

    Raises:
        ValueError, TypeError, RenderError, EncoderError, OSError: as for `render`.
        DecoderError: if the source can't be read, or is damaged.
    """
    run = RunOptions(
        engine=engine,
        ray=ray,
        executor=executor,
        resume=resume,
        progress=progress,
    )
    options = MapOptions(
        size=size,
        pixel_format=pixel_format,
        start=start,
        end=end,
        duration=duration,
        fps=fps,
    )
    chunks = ChunkOptions(
        workers=workers,
        chunk_frames=chunk_frames,
        storage=storage,
        encoder_options=encoder_options,
        version=version,
    )
    count, start_engine = _engine(run, workers)
    return _rendered(_map_plan(function, source, output, options, chunks, count), start_engine, run)


def _scene_plan(
    scene: Scene, output: str | os.PathLike[str], options: SceneOptions, chunks: ChunkOptions, workers: int
) -> Plan:
    audio = options.audio
    if not isinstance(audio, str | os.PathLike | None):
        raise TypeError(
            f"audio must be the path of a file, not {type(audio).__name__}. Write the samples to a WAV file, and pass "
            "audio='sound.wav'"
        )
    if audio is not None and not probe(audio).audio:
        raise ValueError(f"audio={os.fspath(audio)!r} has no audio track")
    return planning.make_plan(
        os.fspath(output),
        chunks,
        frames=options.frames,
        size=options.size,
        fps=options.fps,
        workers=workers,
        encoder_options=chunks.encoder_options,
        code=Code.of(scene, chunks.version, "index", "time_s", "view"),
        audio=None if audio is None else os.fspath(audio),
    )


def _map_plan(
    function: Callable[..., object] | str | None,
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: MapOptions,
    chunks: ChunkOptions,
    workers: int,
) -> Plan:
    if callable(source) or callable(output):
        raise TypeError("source and output must not be callable. Use map_video(function, source, output)")
    size = None if options.size is None else checked_size(options.size)
    media = probe(source)
    frames = FrameTimes.of(media)
    frames.check_distinct(media.path)
    start, end = part_of(options.start, options.end, options.duration)
    frames = frames.part(start, end)
    rate = None if options.fps is None else frame_rate(options.fps)
    if rate is not None:
        with Decoder(source, start=start, end=end, fps=rate) as decoder:
            frames = replace(frames, rate=rate, times_s=decoder.times_s.tolist(), last_s=float(1 / rate))
    lengths = planning.lengths_of(len(frames.times_s), chunks.chunk_frames, workers)
    asked = {"pixel_format": options.pixel_format, **(chunks.encoder_options or {})}
    given = with_codec(os.fspath(output), asked)
    arguments, lost = arguments_like_picture(frames.video, size, given)
    arguments = arguments_like_labels(media, arguments, begins_s=frames.times_s[0]) | arguments
    timecode, lost_timecode = arguments_like_timecode(
        media, {**arguments, "fps": frames.rate}, begins_later=bool(start)
    )
    arguments |= timecode
    lost = [*lost, *lost_timecode, *lost_by_map(media, frames, os.fspath(output), start=start, end=end)]
    sentences = tuple(LOST.format(what) for what in lost)
    for sentence in sentences:
        warn(sentence)
    return planning.make_plan(
        os.fspath(output),
        chunks,
        frames=len(frames.times_s),
        size=(frames.video.width, frames.video.height) if size is None else size,
        fps=frames.rate,
        workers=workers,
        encoder_options=arguments,
        code=None if function is None else Code.of(function, chunks.version, "frame"),
        source=SourceVideo.of(
            *(media.path, options.pixel_format, frames, lengths),
            fps=rate,
            is_whole=start is None,
        ),
        audio=os.fspath(source) if media.audio else None,
        lost=sentences,
    )


def _rendered(planned: Plan, engine: Callable[[Plan], Engine], run: RunOptions) -> RenderReport:
    with locked(planned.output):
        return PlanRun(planned, resume=run.resume).run(engine, run.progress)


def _engine(run: RunOptions, workers: int | None) -> tuple[int, Callable[[Plan], Engine]]:
    """The number of workers that chunks are planned for, and what starts an engine. Checks the arguments."""
    engine, ray, executor = run.engine, run.ray, run.executor
    if executor is not None:
        for name, value in (("engine", engine), ("ray", ray)):
            if value is not None:
                raise ValueError(f"executor= and {argument(name, value)} exclude each other. Pass only one")
        if workers is None:
            raise TypeError(
                "executor= needs workers=, the number of chunks that it renders at once. Pass workers=4"
            )
        count = _workers(workers)
        check_executor(executor)
        return count, lambda planned: Engine(Work.of(planned, whole_cpus() / count), executor, count)
    check_choice("engine", "processes" if engine is None else engine, get_args(EngineName))
    if engine != "ray":
        if ray is not None:
            raise ValueError(
                f"ray options need {argument('engine', 'ray')}, not {argument('engine', engine)}"
            )
        count = _workers(workers)
        return count, lambda planned: Processes(planned, count)
    refuse("Ray")
    from penstock.rendering.engines.ray import RayTasks, check_options, room

    check_options(ray or {})
    count = max(1, room(ray or {})) if workers is None else _workers(workers)
    return count, lambda planned: RayTasks(planned, workers, ray or {}, progress=run.progress is not False)


def _workers(workers: int | None) -> int:
    return whole_cpus() if workers is None else _count("workers", workers)
