"""What is made of decoded samples: their rate, their channels and their type, by libav's filters."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import av
import numpy as np
import numpy.typing as npt
from av.audio.fifo import AudioFifo
from av.audio.frame import AudioFrame
from av.error import FFmpegError as LibavError

from penstock._common.shortage import raise_shortage

if TYPE_CHECKING:
    from av.audio.format import AudioFormat
    from av.audio.layout import AudioLayout
    from av.filter import Graph

#: FFmpeg's sample formats by the names of NumPy's dtypes.
SAMPLE_FORMATS = {"uint8": "u8", "int16": "s16", "int32": "s32", "float32": "flt", "float64": "dbl"}
_DTYPES = {own: dtype for dtype, own in SAMPLE_FORMATS.items()}
# By these, libav makes floats of integers.
_FULL_SCALES = {"s16": 2.0**-15, "s32": 2.0**-31}
# FFmpeg's layouts of 1 to 8 channels where none is named.
_USUAL = ("mono", "stereo", "2.1", "4.0", "5.0", "5.1", "6.1", "7.1")
# No channel of a mix is louder than full scale, whatever the type. Without that, libav does so for integers only.
_MIX = "rematrix_maxval=1"
# PyAV 18 frees the map of a layout of channels in another order twice. To avoid that, the layout is leaked, some 100
# bytes.
_LAYOUT_FREES_TWICE = av.__version__.startswith("18.")


@dataclass(frozen=True, slots=True)
class SampleForm:
    """What is delivered.

    Attributes:
        sample_rate: samples a second.
        channels: how many.
        layout: FFmpeg's name of their layout; None keeps that of the audio, which has as many.
        dtype: NumPy's name of the type.
        matrix: for each delivered channel, the factors of the audio's; None for libav's.
    """

    sample_rate: int
    channels: int
    layout: str | None
    dtype: str
    matrix: tuple[tuple[float, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """What the frames of a graph have in common: a sample rate, a sample format and a channel layout."""

    sample_rate: int
    sample_format: str
    layout: str
    channels: int

    @classmethod
    def of(cls, frame: AudioFrame) -> Kind:
        """The kind of a frame."""
        layout, sample_format = cast("AudioLayout", frame.layout), cast("AudioFormat", frame.format)
        _keep(layout, layout.name)
        return cls(frame.sample_rate, sample_format.name, layout.name, layout.nb_channels)

    def is_of(self, frame: AudioFrame) -> bool:
        """Whether a frame is of this kind."""
        layout, sample_format = cast("AudioLayout", frame.layout), cast("AudioFormat", frame.format)
        name = layout.name
        _keep(layout, name)
        is_alike = name == self.layout and frame.sample_rate == self.sample_rate
        return is_alike and sample_format.name == self.sample_format


class Mixer:
    """A graph of libav's filters for frames of one kind, or none where their samples are delivered as they are.

    Args:
        kind, form: what comes, and what is made of it.
        skipped: how many samples to drop first.
        name: the layout of the frames, if that is not in them.

    Raises:
        ValueError: libav has no way from one to the other.
    """

    def __init__(self, kind: Kind, form: SampleForm, skipped: int = 0, name: str | None = None) -> None:
        if form.matrix is not None and len(form.matrix[0]) != kind.channels:
            columns = len(form.matrix[0])
            raise ValueError(f"{kind.channels} channels don't fit a matrix of {columns} columns")
        self.kind, self._form, self._skipped = kind, form, skipped
        own = name or kind.layout
        if own == f"{kind.channels} channels":  # libav can't mix channels without a name
            own = layout_of(kind.channels)
        layout = own if form.layout is None else form.layout
        is_kept = layout == own and form.matrix is None
        self._graph: Graph | None = None
        self._scale = _scale_of(kind, form) if is_kept else None
        if self._scale is not None:
            return
        self._graph = _graph()
        filters: list[tuple[str, str]] = [("atrim", f"start_sample={skipped}")] if skipped else []
        if form.matrix is not None:
            filters.append(("pan", _pan(form.matrix)))
        elif own != kind.layout and not is_kept:
            filters.append(("pan", _same(_list_of(own), kind.channels)))
        filters.append(("aresample", f"{form.sample_rate}:{_MIX}"))
        mixed = "" if is_kept or form.matrix else f":channel_layouts={_list_of(layout)}"
        wanted = f"sample_fmts={SAMPLE_FORMATS[form.dtype]}:sample_rates={form.sample_rate}{mixed}"
        filters.append(("aformat", wanted))
        if _has_map(layout):
            filters.append(("pan", _same(f"{form.channels}c", form.channels)))
        try:
            _link(self._graph, kind, filters)
        except LibavError as error:
            raise_shortage(error)
            raise ValueError(f"{own} can't become {layout}") from error

    def push(self, frames: Sequence[AudioFrame | None]) -> list[npt.NDArray[Any]]:
        """The samples that there are after these frames, the last of which may be None for the end.

        Returns:
            Arrays of samples × channels.
        """
        if self._graph is None:
            return self._as_they_are([frame for frame in frames if frame is not None])
        for frame in frames:
            if frame is not None:
                frame.pts = None
        arrays = []
        try:
            for frame in frames if _has_map(self.kind.layout) else _joined(frames):
                self._graph.push(frame)
            while True:
                made = cast("AudioFrame", self._graph.pull())
                arrays.append(made.to_ndarray().reshape(-1, self._form.channels))
        except (BlockingIOError, EOFError):
            return arrays
        except LibavError as error:
            raise_shortage(error)
            raise

    def _as_they_are(self, frames: Sequence[AudioFrame]) -> list[npt.NDArray[Any]]:
        if not frames:
            return []
        channels, dtype = self.kind.channels, _DTYPES[self.kind.sample_format.rstrip("p")]
        in_plane = 1 if self.kind.sample_format.endswith("p") else channels
        planes: Any = zip(*(frame.planes for frame in frames), strict=True)
        counts = [frame.samples * in_plane for frame in frames]
        rows = [[np.frombuffer(one, dtype, n) for one, n in zip(row, counts, strict=True)] for row in planes]
        joined = [np.concatenate(row) for row in rows]
        samples = joined[0].reshape(-1, channels) if len(joined) == 1 else np.stack(joined, axis=1)
        skipped = min(self._skipped, len(samples))
        self._skipped -= skipped
        samples = samples[skipped:].astype(self._form.dtype, copy=False)
        if self._scale:
            samples *= self._scale
        return [samples] if len(samples) else []


def _scale_of(kind: Kind, form: SampleForm) -> float | None:
    """By what samples become those that are delivered; 0 if they are the same, None if there is more to do."""
    own = kind.sample_format.rstrip("p")
    if kind.sample_rate != form.sample_rate:
        return None
    if own == SAMPLE_FORMATS[form.dtype]:
        return 0
    return _FULL_SCALES.get(own) if form.dtype.startswith("float") else None


def _graph() -> Graph:
    graph = av.filter.Graph()
    graph.threads = 1  # to start threads takes longer than all else, and no filter here uses them
    return graph


def _link(graph: Graph, kind: Kind, filters: Iterable[tuple[str, str]]) -> None:
    source = graph.add(
        "abuffer",
        sample_rate=str(kind.sample_rate),
        sample_fmt=kind.sample_format,
        channel_layout=kind.layout,
        time_base=str(Fraction(1, kind.sample_rate)),
    )
    made = (graph.add(name, options) for name, options in filters)
    graph.link_nodes(source, *made, graph.add("abuffersink")).configure()


def first_of(frame: AudioFrame, count: int) -> AudioFrame:
    """The first samples of a frame, in a frame of their own."""
    kind = Kind.of(frame)
    graph = _graph()
    _link(graph, kind, [("atrim", f"end_sample={count}")])
    graph.push(frame)
    graph.push(None)
    return cast("AudioFrame", graph.pull())


def _joined(frames: Sequence[AudioFrame | None]) -> list[AudioFrame | None]:
    """The same samples in one frame, because a graph takes longer for each frame than for its samples."""
    given = [frame for frame in frames if frame is not None]
    if len(given) < 2:
        return [*frames]
    fifo = AudioFifo()
    for frame in given:
        fifo.write(frame)
    return [fifo.read(), *frames[len(given) :]]


def layout_of(channels: int) -> str:
    """FFmpeg's usual layout of so many channels."""
    return _USUAL[channels - 1] if channels <= len(_USUAL) else f"{channels} channels"


def matrix_of(layout: str | None, channels: int, form: SampleForm) -> npt.NDArray[np.float64]:
    """The factors by which the channels of a layout are mixed: delivered channels × channels of the audio."""
    kind = Kind(48_000, "dbl", f"{channels} channels", channels)
    frame = AudioFrame.from_ndarray(np.eye(channels).reshape(1, -1), format="dbl", layout=kind.layout)
    frame.sample_rate = kind.sample_rate
    form = replace(form, sample_rate=kind.sample_rate, dtype="float64")
    mixer = Mixer(kind, form, name=layout)
    return np.concatenate(mixer.push([frame, None]))[:channels].T.copy()


def _keep(layout: AudioLayout, name: str) -> None:
    """Sees to it that the layout of that name is never freed if that is wrong."""
    if _LAYOUT_FREES_TWICE and _has_map(name):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(layout))


def _list_of(layout: str) -> str:
    """A layout's name as filters take it: FFmpeg describes one without a name as "3 channels (FL+FC+FR)"."""
    return layout.partition("(")[2].rstrip(")") if _has_map(layout) else layout


def _has_map(layout: str) -> bool:
    return " channels (" in layout


def _same(layout: str, channels: int) -> str:
    """The arguments of `pan` that give the channels another layout, and leave them as they are."""
    return "|".join([layout, *(f"c{number}=c{number}" for number in range(channels))])


def _pan(matrix: tuple[tuple[float, ...], ...]) -> str:
    """The arguments of FFmpeg's filter `pan`."""
    rows = ("+".join(f"{factor:.17g}*c{n}" for n, factor in enumerate(row)) for row in matrix)
    return "|".join([f"{len(matrix)}c", *(f"c{n}={row}" for n, row in enumerate(rows))])
