"""The steps of `penstock.render` and `penstock.map_video`, and their reports.

`penstock.render` draws a scene, and `penstock.map_video` changes a video. Most programs need only these two. If your
machines have a scheduler of their own, schedule the steps yourself:

- `plan` (for a scene) or `plan_video` (for a video) makes a `Plan`. Its chunks, each a `Plan.Chunk`, are runs of
  frames.
- `render_chunk` renders one chunk, on any worker, and returns a `RenderReport.Chunk`. A chunk begins with a keyframe
  and needs no other chunk, so draw each frame from its index alone.
- `assemble` joins the chunks without encoding them again, verifies the video, and returns a `JoinReport`.

`penstock.render` and `penstock.map_video` return a `RenderReport`, with a `RenderReport.Worker` for each worker. They
call ``progress`` with a `RenderProgress`.
"""

# planning says what is to be done, with the user's code and the source of a video; chunk renders one chunk into the
# storage; engines has many rendered, by anybody's executor, processes or ray; job runs a plan with one of them, and
# join makes the video and verifies it. api has the calls, and reports what they return.

from typing import TYPE_CHECKING

from penstock._common import lazy as _lazy

if TYPE_CHECKING:
    from penstock.rendering.api import plan, plan_video
    from penstock.rendering.chunk import render_chunk
    from penstock.rendering.join import JoinReport, assemble
    from penstock.rendering.planning import Plan
    from penstock.rendering.reports import RenderProgress, RenderReport

__all__ = [
    "JoinReport",
    "Plan",
    "RenderProgress",
    "RenderReport",
    "assemble",
    "plan",
    "plan_video",
    "render_chunk",
]

if not TYPE_CHECKING:  # or type checkers would accept any name
    __getattr__, __dir__ = _lazy.attributes(
        __name__,
        names={
            **dict.fromkeys(("plan", "plan_video"), "rendering.api"),
            "render_chunk": "rendering.chunk",
            **dict.fromkeys(("JoinReport", "assemble"), "rendering.join"),
            "Plan": "rendering.planning",
            **dict.fromkeys(("RenderProgress", "RenderReport"), "rendering.reports"),
        },
    )
