"""An HTTP server on this machine, which counts requests, and can stop in the middle of an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    """Answers every request with the same bytes.

    Attributes:
        url: what to open.
        offsets: at which byte each request begins.
        most_open: the most answers that were under way at a time.
        goes_on: while this is not set, an answer stops after `stops_at` bytes.
        keeps_connections: a connection may be asked again, also where the client won't.
        is_chunked: answers don't tell their length beforehand, and end properly all the same.
        has_length: answers tell their length. Otherwise only the end of the connection ends them.
    """

    def __init__(self, data: bytes, *, has_ranges: bool, stops_at: int | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.data, self.has_ranges, self.stops_at = data, has_ranges, stops_at
        self.url = f"http://127.0.0.1:{self.server_port}/video"
        self.offsets: list[int] = []
        self.open = self.most_open = 0
        self.goes_on = threading.Event()
        self.is_chunked = self.keeps_connections = False
        self.has_length = True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        server = self.server
        given = self.headers.get("Range", "bytes=0-") if server.has_ranges else "bytes=0-"
        first, whole = int(given.removeprefix("bytes=").partition("-")[0]), len(server.data)
        server.offsets.append(first)
        server.open += 1
        server.most_open = max(server.most_open, server.open)
        with suppress(OSError):  # the client has gone
            self._answer(first, whole)
        server.open -= 1

    def _answer(self, first: int, whole: int) -> None:
        server = self.server
        if server.stops_at == 0:
            server.goes_on.wait()
        self.send_response(206 if server.has_ranges else 200)
        if server.has_ranges:
            self.send_header("Content-Range", f"bytes {first}-{whole - 1}/{whole}")
        if not server.keeps_connections:
            self.send_header("Connection", "close")
        if server.is_chunked:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (whole, server.data))
            return
        if server.has_length:
            self.send_header("Content-Length", str(whole - first))
        self.end_headers()
        stops_at = whole if server.stops_at is None else server.stops_at
        self.wfile.write(server.data[first:stops_at])
        if stops_at < whole:
            server.goes_on.wait()
            self.wfile.write(server.data[stops_at:])

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


@contextmanager
def http_server(data: bytes, *, has_ranges: bool = False, stops_at: int | None = None) -> Iterator[Server]:
    """A server of these bytes."""
    server = Server(data, has_ranges=has_ranges, stops_at=stops_at)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.goes_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
