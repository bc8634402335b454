#!/bin/sh
# libav says that a seek in an AVI file by HTTP has succeeded where the server can't answer with a part of a file, but
# goes on where it was: here at frame 0, for 5 s that were asked for. For FLV it reports an error; Matroska, MP4 and
# MPEG-TS are read on to the place.
#
# Penstock looks at the packet that comes after a seek (`_decoding/sequence.py`).
#
# Seen with PyAV 18.1.0, for 100 frames at 10 a second whose last keyframe before is at 4.2 s.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --target packages av==18.1.0 numpy==2.4.6 || exit 2
cat > run.py <<'END'
import http.server
import threading

import av
import numpy as np


class Server(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


for name, codec in (("film.avi", "mpeg4"), ("film.mkv", "mpeg4"), ("film.flv", "flv1")):
    with av.open(name, "w") as output:
        stream = output.add_stream(codec, rate=10)
        stream.codec_context.gop_size = 10
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(100):
            image = np.full((48, 64, 3), number, np.uint8)
            output.mux(stream.encode(av.VideoFrame.from_ndarray(image)))
        output.mux(stream.encode(None))
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
for name in ("film.avi", "film.mkv", "film.flv"):
    for kind, source in (("file", name), ("HTTP", f"http://127.0.0.1:{server.server_port}/{name}")):
        with av.open(source) as file:
            stream = file.streams.video[0]
            try:
                file.seek(int(5 / stream.time_base), stream=stream)
                packet = next(file.demux(stream))
                print(f"{name}, {kind}: first packet at {float(packet.pts * packet.time_base):.1f} s")
            except av.FFmpegError:
                print(f"{name}, {kind}: an error")
END
PYTHONPATH=packages python3 run.py | tee seen
cat > expected <<END
film.avi, file: first packet at 4.2 s
film.avi, HTTP: first packet at 0.0 s
film.mkv, file: first packet at 4.2 s
film.mkv, HTTP: first packet at 4.2 s
film.flv, file: first packet at 4.2 s
film.flv, HTTP: an error
END
diff expected seen
