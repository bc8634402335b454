#!/bin/sh
# libav's MP4 muxer can write fragments while it works, and make an ordinary file of them at the end
# (hybrid_fragmented). With delay_moov, which keeps the header back until the first fragment, libavformat 61.7
# (FFmpeg 7.1) and 62.3 (8.0) make a file without frames, or one that can't be decoded. Neither says a word. By
# libavformat 62.12, all frames are there.
#
# Penstock makes a file of one frame by the program that it was given, and leaves hybrid_fragmented out if the frame
# isn't there (`makes_ordinary_files` in `_encoding/crash_safety.py`).
#
# Seen with 4 and 20 frames of 64 x 64, 20 a second, by PyAV's wheels.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > frames.py <<'END'
import sys

import av


def frames(movflags, count):
    options = {"movflags": movflags, "frag_duration": "500000"}
    with av.open("made.mp4", "w", options=options) as made:
        stream = made.add_stream("mpeg4", rate=20)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for number in range(count):
            frame = av.VideoFrame(64, 64, "yuv420p")
            frame.pts = number
            for plane in frame.planes:
                plane.update(bytes([number]) * plane.buffer_size)
            made.mux(stream.encode(frame))
        made.mux(stream.encode())
    try:
        with av.open("made.mp4") as read:
            return len(list(read.decode(video=0)))
    except av.error.InvalidDataError:
        return "invalid data"


av.logging.set_level(None)
for movflags in ("delay_moov", "delay_moov+hybrid_fragmented"):
    print(f"{av.__version__}: {movflags}: {frames(movflags, 4)} of 4, {frames(movflags, 20)} of 20")
END
for version in 14.1.0 16.0.1 18.1.0; do
    python3 -m pip install --quiet --no-deps --target "$version" "av==$version" || exit 2
    PYTHONPATH=$version python3 frames.py | tee -a seen
done
cat > expected <<END
14.1.0: delay_moov: 4 of 4, 20 of 20
14.1.0: delay_moov+hybrid_fragmented: 0 of 4, invalid data of 20
16.0.1: delay_moov: 4 of 4, 20 of 20
16.0.1: delay_moov+hybrid_fragmented: 0 of 4, invalid data of 20
18.1.0: delay_moov: 4 of 4, 20 of 20
18.1.0: delay_moov+hybrid_fragmented: 4 of 4, 20 of 20
END
diff expected seen
