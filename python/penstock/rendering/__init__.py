"""One render on many processes or machines: a plan, its chunks, and the join.

`render` draws a scene and `map_video` changes a video. Both make a `Plan`, have its chunks rendered by an engine, each
by an `Encoder` of its own, and join them without encoding again. `plan`, `render_chunk` and `assemble` are the same
steps for those who schedule by themselves. A chunk begins with a keyframe and needs no other one; any worker may render
any chunk, so that what a frame needs comes from its index.

``planning`` says what is to be done, with the user's ``code`` and the ``source`` of a video; ``chunk`` renders one
chunk into the ``storage``; ``engines`` have many rendered, by ``processes`` or ``ray``; ``job`` runs a plan with one of
them, and ``join`` makes the video and verifies it. ``api`` has the calls.
"""

from penstock.rendering.api import map_video, plan, plan_video, render
from penstock.rendering.chunk import render_chunk
from penstock.rendering.join import Joined, assemble
from penstock.rendering.planning import Plan, RenderChunk

__all__ = [
    "Joined",
    "Plan",
    "RenderChunk",
    "assemble",
    "map_video",
    "plan",
    "plan_video",
    "render",
    "render_chunk",
]
