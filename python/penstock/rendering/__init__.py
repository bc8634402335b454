"""One render on many processes or machines: a plan, its chunks, and the join.

`penstock.render` draws a scene and `penstock.map_video` changes a video. Both make a `Plan`, have its chunks rendered
by an engine, each by an `Encoder` of its own, and join them without encoding again. `plan`, `render_chunk` and
`assemble` are the same steps for those who schedule by themselves. A chunk begins with a keyframe and needs no other
one; any worker may render any chunk, so that what a frame needs comes from its index.

``planning`` says what is to be done, with the user's ``code`` and the ``source`` of a video; ``chunk`` renders one
chunk into the ``storage``; ``engines`` have many rendered, by ``processes`` or ``ray``; ``job`` runs a plan with one of
them, and ``join`` makes the video and verifies it. ``api`` has the calls, and ``reports`` what they return.
"""

from penstock.rendering.api import plan, plan_video
from penstock.rendering.chunk import render_chunk
from penstock.rendering.join import JoinReport, assemble
from penstock.rendering.planning import Plan, RenderChunk
from penstock.rendering.reports import ChunkReport, RenderProgress, RenderReport, WorkerReport

__all__ = [
    "ChunkReport",
    "JoinReport",
    "Plan",
    "RenderChunk",
    "RenderProgress",
    "RenderReport",
    "WorkerReport",
    "assemble",
    "plan",
    "plan_video",
    "render_chunk",
]
