"""An asyncio server that cuts clips out of a video while it sends them: every request has its own FFmpeg and pace.

    python examples/clip_server.py video.mp4
    curl -o clip.mp4 "http://127.0.0.1:8000/?start=1.5&duration=2"

A slow client holds up its own encoder, and nobody else. The answer comes in chunks, of which the last one is empty: a
client to which an error cut the answer short notices that it's missing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from penstock import Decoder, Encoder, PenstockError
from penstock.video import VideoFrame


async def answer(video: Path, request: asyncio.StreamReader, response: asyncio.StreamWriter) -> None:
    """One request, one answer, and the end of the connection."""
    with contextlib.closing(response), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        head = await request.readuntil(b"\r\n\r\n")
        try:
            decoder = Decoder(video, **part_of(head))
        except (ValueError, PenstockError) as error:
            return refuse(response, error)
        with decoder:
            try:
                first = await anext(decoder)
            except PenstockError as error:
                return refuse(response, error)
            try:
                await send_clip(first, decoder, response)
            except PenstockError as error:
                print(f"an answer was cut short: {error}", file=sys.stderr)


def part_of(head: bytes) -> dict[str, float]:
    """The arguments of the Decoder that a request asks for."""
    method, target, *_ = head.decode("latin-1").split(" ")
    asked = dict(parse_qsl(urlsplit(target).query))
    if method != "GET" or not asked.keys() <= {"start", "duration"}:
        raise ValueError("ask for GET /?start=SECONDS&duration=SECONDS")
    return {name: float(value) for name, value in asked.items()}


def refuse(response: asyncio.StreamWriter, error: Exception) -> None:
    response.write(f"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n{error}\n".encode())


async def send_clip(first: VideoFrame, decoder: Decoder, response: asyncio.StreamWriter) -> None:
    head = "HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    response.write(head.encode())
    chunks = Chunks(response)
    encoder = Encoder.like(decoder, chunks, preset="veryfast", crash_safe=True, options={"f": "mp4"})
    async with encoder:
        await encoder.awrite(255 - first, time_s=0)  # a clip begins with its first frame
        async for frame in decoder:
            await encoder.awrite(255 - frame, time_s=frame.time_s - first.time_s)
    await chunks.send(b"")


class Chunks:
    """What an encoder writes to: each piece is a chunk of the answer.

    A thread writes, and waits for the loop to send: a client that takes nothing holds up FFmpeg, and so the frames.
    """

    def __init__(self, response: asyncio.StreamWriter) -> None:
        self._response = response
        self._loop = asyncio.get_running_loop()

    def write(self, data: bytes) -> int:
        asyncio.run_coroutine_threadsafe(self.send(data), self._loop).result()
        return len(data)

    async def send(self, data: bytes) -> None:
        self._response.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self._response.drain()


async def main() -> None:
    options = parse_options()
    server = await asyncio.start_server(partial(answer, options.video), "127.0.0.1", options.port)
    host, port = server.sockets[0].getsockname()
    print(f"http://{host}:{port}/?start=0&duration=1", flush=True)
    async with server:
        await server.serve_forever()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Serves clips of a video, as its negative.")
    parser.add_argument("video", type=Path)
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    return parser.parse_args()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
