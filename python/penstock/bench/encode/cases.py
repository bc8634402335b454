"""What can be measured: the jobs, and the methods.

A *job* is a size, a way to encode and a content. Its *cases* are the methods, each run once a round; only cases
of one job and one FFmpeg are compared with each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from penstock.bench.frames import Content

CODEC = "libx264"
OUTPUT_PIXEL_FORMAT = "yuv420p"
FRAMES_PER_S = 30
BYTES_PER_PIXEL = 3
#: x264's own default, said to those that would take another one.
CRF = "23"

#: The method that gains are counted from.
STANDARD = "stdin.write"
OURS = "penstock"
SUBMIT = "penstock-submit"
#: FFmpeg alone, with nothing to convert and no pipe to read.
BOUND = "tmpfs-yuv420p"

#: A case slower than this has hung. Guessed low, for slow machines.
SLOWEST_BYTES_PER_S = 10e6


@dataclass(frozen=True)
class Job:
    """What every method has to encode."""

    name: str
    width: int
    height: int
    preset: str
    content: Content
    frames: int
    #: Frames come no faster than this; None for as fast as the method takes them.
    paced_fps: int | None = None

    @property
    def frame_bytes(self) -> int:
        """Bytes of a frame as it is sent."""
        return self.width * self.height * BYTES_PER_PIXEL

    @property
    def title(self) -> str:
        """For people."""
        pace = f", paced at {self.paced_fps} fps" if self.paced_fps else ""
        what = f"{self.width}x{self.height} {self.content} to x264 {self.preset}"
        return f"{self.name}: {what}{pace}, {self.frames} frames"

    @property
    def timeout_s(self) -> float:
        """After this long a case has hung. A minute is for a machine that is busy with something else."""
        paced_s = self.frames / self.paced_fps if self.paced_fps else 0
        return 60 + paced_s + self.frames * self.frame_bytes / SLOWEST_BYTES_PER_S


@dataclass(frozen=True)
class Method:
    """One way to get frames from Python into a video file."""

    name: str
    summary: str
    #: ``rival`` is compared with ours; ``other`` cannot do the same and is only shown; ``bound`` has no Python in it.
    kind: Literal["ours", "rival", "other", "bound"]
    #: Packages' modules that it cannot run without.
    needs: tuple[str, ...] = ()
    #: The modules loaded before the clock starts: their import is nobody's speed.
    loads: tuple[str, ...] = ()
    #: Of the frames that it is given.
    pixel_format: Literal["rgb24", "bgr24", "yuv420p"] = "rgb24"
    #: Encodes in its own process, by libraries of its own, whatever ``--ffmpeg`` says.
    own_ffmpeg: bool = False
    #: For our own: who converts the colours.
    convert: Literal["auto", "ffmpeg"] = "auto"
    #: For our own: whether frames are submitted, each from its array, and not taken by the call.
    borrows: bool = False

    def serves(self, job: Job) -> bool:
        """Whether it can run the job: FFmpeg alone has no pace."""
        return self.kind != "bound" or job.paced_fps is None


# Some two seconds each for FFmpeg alone, on 2 cores.
JOBS = (
    Job("ultrafast-720p", 1280, 720, "ultrafast", "noise", 1000),
    Job("ultrafast-1080p", 1920, 1080, "ultrafast", "noise", 400),
    Job("ultrafast-2160p", 3840, 2160, "ultrafast", "noise", 120),
    Job("medium-1080p", 1920, 1080, "medium", "noise", 120),
    Job("texture-1080p", 1920, 1080, "ultrafast", "texture", 300),
    Job("paced-1080p", 1920, 1080, "ultrafast", "texture", 150, paced_fps=30),
)

METHODS = (
    Method(STANDARD, "stdin.write(frame.tobytes()) into FFmpeg", "rival"),
    Method(
        "imageio-ffmpeg",
        "write_frames, given the array itself",
        "rival",
        needs=("imageio_ffmpeg",),
        loads=("imageio_ffmpeg",),
    ),
    Method(
        "moviepy",
        "FFMPEG_VideoWriter",
        "rival",
        needs=("moviepy",),
        loads=("moviepy.video.io.ffmpeg_writer",),
    ),
    Method(
        "vidgear",
        "WriteGear in compression mode",
        "rival",
        needs=("vidgear", "cv2"),
        loads=("vidgear.gears",),
    ),
    Method(
        "turbopipe",
        "TurboPipe, with sync before a buffer is used again",
        "rival",
        needs=("turbopipe",),
        loads=("turbopipe",),
    ),
    Method(
        "pyav",
        "frames on the arrays' own memory, threads for the conversion and the codec",
        "rival",
        needs=("av",),
        loads=("av",),
        own_ffmpeg=True,
    ),
    Method(
        "opencv",
        "VideoWriter; its wheels encode no H.264, so that this is MPEG-4 Part 2",
        "other",
        needs=("cv2",),
        loads=("cv2",),
        pixel_format="bgr24",
        own_ffmpeg=True,
    ),
    Method(OURS, "penstock.Encoder, write: the call takes the frame", "ours", loads=("penstock",)),
    Method(
        SUBMIT,
        "penstock.Encoder, submit: the arrays are lent, and painted again when their tickets are done",
        "ours",
        loads=("penstock",),
        borrows=True,
    ),
    Method(
        "penstock-ffmpeg",
        'penstock.Encoder with convert="ffmpeg"',
        "ours",
        loads=("penstock",),
        convert="ffmpeg",
    ),
    Method(BOUND, "the bound: FFmpeg reads yuv420p from memory by itself", "bound", pixel_format="yuv420p"),
    Method("tmpfs-rgb24", "the same with rgb24, which FFmpeg has to convert", "bound"),
)


@dataclass(frozen=True)
class Settings:
    """What to run. The defaults are what the goals are about."""

    ffmpegs: tuple[str, ...]
    jobs: tuple[Job, ...] = JOBS
    methods: tuple[Method, ...] = METHODS
    rounds: int = 5
    #: Makes the pictures and the order of the methods in each round, the same in every run.
    seed: int = 1
    check_content: bool = True
