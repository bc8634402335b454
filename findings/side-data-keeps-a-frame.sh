#!/bin/sh
# A PyAV frame whose side data was read is freed by the garbage collector only: the frame and its side data refer to each
# other. A program that looks at the side data of each frame, and has turned the collector off or makes few other objects,
# keeps all of their pixels. A container made by hand, SideDataContainer(frame), holds the frame, but isn't held by it.
#
# Penstock makes that container by hand (`_facts/probing.py`).
#
# Seen with PyAV 18.1.0.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --target packages av==18.1.0 numpy==2.4.6 || exit 2
cat > run.py <<'END'
import gc, os
import av, numpy as np
from av.sidedata.sidedata import SideDataContainer

with av.open("video.mp4", "w") as output:
    stream = output.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
    stream.width, stream.height, stream.pix_fmt = 1280, 720, "yuv420p"
    for _ in range(60):
        output.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((720, 1280, 3), np.uint8), format="rgb24")))
    output.mux(stream.encode(None))

def resident_mb():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

gc.disable()
for name, look in {
    "nothing": lambda frame: None,
    "SideDataContainer(frame)": lambda frame: len(SideDataContainer(frame)),
    "frame.side_data": lambda frame: len(frame.side_data),
}.items():
    gc.collect()
    before = resident_mb()
    with av.open("video.mp4") as file:
        for frame in file.decode(video=0):
            look(frame)
            del frame
    kept = resident_mb() - before
    print(f"{name}: {'frames are kept' if kept > 40 else 'frames are freed'}; garbage of frames: {gc.collect() > 0}")
END
PYTHONPATH=packages python3 run.py | tee seen
cat > expected <<END
nothing: frames are freed; garbage of frames: False
SideDataContainer(frame): frames are freed; garbage of frames: False
frame.side_data: frames are kept; garbage of frames: True
END
diff expected seen
