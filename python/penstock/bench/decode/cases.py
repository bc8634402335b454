"""What can be measured: the jobs, and the methods.

A *job* is a source of frames: a video file, or a pipe that another process fills. Its *cases* are the methods, each
run once a round; only cases of one job are compared with each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CHANNELS = 3
FRAMES_PER_S = 30
#: x264's own defaults, said for the record; x265 gets the same.
PRESET, CRF = "medium", "23"

#: The method that gains are counted from, for each kind of source.
STANDARD = "stdout.readinto"
PIPE_STANDARD = "readinto"
OURS = "penstock"
OUR_READER = "penstock.Reader"
#: FFmpeg alone: it decodes, and nobody gets the frames.
BOUND = "decode-only"

#: A case slower than this has hung. Guessed low, for slow machines.
SLOWEST_BYTES_PER_S = 10e6
#: About so many rows of a frame are sampled, and as many pixels of a row as lie as far apart.
SAMPLED_ROWS = 64

Source = Literal["file", "pipe"]


@dataclass(frozen=True)
class Job:
    """What every method has to read."""

    name: str
    width: int
    height: int
    frames: int
    #: Of the file; None for frames that come through a pipe as they are.
    encoder: str | None

    @property
    def source(self) -> Source:
        """Where the frames come from."""
        return "pipe" if self.encoder is None else "file"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of a frame: height × width × channels."""
        return self.height, self.width, CHANNELS

    @property
    def frame_bytes(self) -> int:
        """Bytes of a frame as it is given to the caller."""
        return self.height * self.width * CHANNELS

    @property
    def sample_step(self) -> int:
        """Rows and pixels from one that is sampled to the next."""
        return max(1, self.height // SAMPLED_ROWS)

    @property
    def title(self) -> str:
        """For people."""
        what = "from another process's write(2)" if self.encoder is None else f"of {self.encoder} {PRESET}"
        return f"{self.name}: {self.width}x{self.height} {what}, {self.frames} frames"

    @property
    def timeout_s(self) -> float:
        """After this long a case has hung. A minute is for a machine that is busy with something else."""
        return 60 + self.frames * self.frame_bytes / SLOWEST_BYTES_PER_S


@dataclass(frozen=True)
class Method:
    """One way to get frames into arrays of height × width × 3 bytes."""

    name: str
    summary: str
    #: ``rival`` is compared with ours; ``other`` is only shown; ``bound`` has no Python in it.
    kind: Literal["ours", "rival", "other", "bound"]
    source: Source = "file"
    #: Packages' modules that it cannot run without. They are loaded before the clock starts, for their import is
    #: nobody's speed.
    needs: tuple[str, ...] = ()
    #: Of the arrays that it gives.
    pixel_format: Literal["rgb24", "bgr24"] = "rgb24"
    #: Decodes in its own process, by libraries of its own, whatever ``--ffmpeg`` says.
    own_ffmpeg: bool = False

    @property
    def drives_pipe(self) -> bool:
        """Whether it starts FFmpeg and reads what that writes."""
        return self.source == "file" and self.kind != "bound" and not self.own_ffmpeg


# Some two seconds each for FFmpeg alone, on 2 cores.
JOBS = (
    Job("h264-720p", 1280, 720, 900, "libx264"),
    Job("h264-1080p", 1920, 1080, 600, "libx264"),
    Job("h264-2160p", 3840, 2160, 150, "libx264"),
    Job("h265-1080p", 1920, 1080, 240, "libx265"),
    Job("reader", 1920, 1080, 1000, None),
)

METHODS = (
    Method(STANDARD, "FFmpeg's rawvideo, by readinto into one array", "rival"),
    Method("imageio-ffmpeg", "read_frames, and np.frombuffer", "rival", needs=("imageio_ffmpeg",)),
    Method("ffmpegcv", "VideoCapture, for rgb24", "rival", needs=("ffmpegcv",)),
    Method(
        "opencv",
        "VideoCapture.read, which gives BGR",
        "rival",
        needs=("cv2",),
        pixel_format="bgr24",
        own_ffmpeg=True,
    ),
    Method("opencv-rgb", "the same, and cvtColor", "rival", needs=("cv2",), own_ffmpeg=True),
    Method("pyav", "decode, and to_ndarray", "rival", needs=("av",), own_ffmpeg=True),
    Method(
        "pyav-threaded",
        "the same with threads for frames and slices",
        "rival",
        needs=("av",),
        own_ffmpeg=True,
    ),
    Method("decord", "VideoReader, one frame after another", "rival", needs=("decord",), own_ffmpeg=True),
    Method(OURS, "penstock.Decoder", "ours", needs=("penstock",)),
    Method("penstock-bgr", "the same for bgr24", "ours", needs=("penstock",), pixel_format="bgr24"),
    Method(BOUND, "the bound: FFmpeg decodes to null", "bound"),
    Method(PIPE_STANDARD, "readinto from a pipe of the default size", "rival", source="pipe"),
    Method("readinto-1MiB", "the same from a pipe of 1 MiB", "other", source="pipe"),
    Method(OUR_READER, "its frames, one after another", "ours", source="pipe", needs=("penstock",)),
)


@dataclass(frozen=True)
class Settings:
    """What to run. The defaults are what the goals are about."""

    ffmpeg: str
    jobs: tuple[Job, ...] = JOBS
    methods: tuple[Method, ...] = METHODS
    rounds: int = 5
    #: Makes the frames of the pipe and the order of the methods in each round, the same in every run.
    seed: int = 1
