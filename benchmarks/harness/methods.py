"""Jobs, and the methods that do them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

#: Names of packages on PyPI that differ from the module's name.
PACKAGES = {"cv2": "opencv-python-headless", "imageio_ffmpeg": "imageio-ffmpeg"}

Kind = Literal["ours", "rival", "other", "bound"]
Start = TypeVar("Start", bound=Callable[..., Any])


@dataclass(frozen=True)
class PlainJob:
    """A job by its name, the title of its table, and what the record says of it."""

    name: str
    title: str
    about: dict[str, Any] = field(hash=False)


@dataclass(frozen=True)
class FrameJob:
    """A job that moves frames of ``height × width × 3`` bytes."""

    name: str
    width: int
    height: int
    frames: int

    @property
    def slowest_bytes_per_s(self) -> float:
        """A slower case has hung. Guessed low, for slow machines."""
        return 10e6

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.width, self.height

    @property
    def frame_bytes(self) -> int:
        return self.width * self.height * 3

    @property
    def timeout_s(self) -> float:
        """A case that takes longer has hung. A minute is for a machine that is busy with something else."""
        return 60 + self.frames * self.frame_bytes / self.slowest_bytes_per_s

    @property
    def about(self) -> dict[str, Any]:
        """The job in the record."""
        return {key: value for key, value in asdict(self).items() if key != "name"}


@dataclass(frozen=True)
class Method:
    """One way to do a job."""

    name: str
    summary: str
    #: A ``rival`` is compared with ours. An ``other`` does something else, and is only shown. A ``bound`` is FFmpeg
    #: alone.
    kind: Kind = "rival"
    #: A function that does the job. Each benchmark defines its arguments. None for a bound.
    start: Any = None
    #: Modules that are imported before the clock starts.
    needs: tuple[str, ...] = ()
    #: The kinds of jobs that the method can do; empty if it can do all.
    serves: tuple[str, ...] = ()
    #: Of the frames that the method takes or gives.
    pixel_format: str = "rgb24"
    #: Whether it uses FFmpeg libraries of its own instead of the program that ``--ffmpeg`` names.
    own_ffmpeg: bool = False

    def can_do(self, job: Any) -> bool:
        """Whether the job, which has a ``kind`` if there are several, is for this method."""
        return not self.serves or job.kind in self.serves

    @property
    def packages(self) -> dict[str, str]:
        """The packages on PyPI that have the needed modules, by the module's top-level name."""
        names = (module.partition(".")[0] for module in self.needs)
        return {name: PACKAGES.get(name, name) for name in names}

    def missing(self) -> str | None:
        """Why the method cannot run here, or None if it can."""
        absent = [one for name, one in self.packages.items() if importlib.util.find_spec(name) is None]
        return f"not installed (pip install {' '.join(absent)})" if absent else None


class Methods(list[Method]):
    """The methods of a benchmark, in the order of its tables."""

    def add(self, name: str, kind: Kind = "rival", summary: str = "", **how: Any) -> Callable[[Start], Start]:
        """A decorator that makes a method of a function. By default the summary is the docstring's first line."""

        def register(start: Start) -> Start:
            said = summary or (start.__doc__ or "").partition("\n")[0].rstrip(".")
            self.append(Method(name, said, kind, start, **how))
            return start

        return register
