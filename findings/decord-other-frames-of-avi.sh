#!/bin/sh
# decord2 3.4.0 returns other frames than asked for from MPEG-4 with B-frames in AVI, whose packets have no presentation
# times, and times of -3.7e17 seconds, without an error. One frame after another is right.
#
# Penstock's page for those who come from decord says so (`docs/migration/torchcodec.md`).
# Its own index of such a file is made by decoding, not by packets' times.
#
# Seen: get_batch([0, 4, 8, 12, 16, 20, 24, 28, 32, 36]) returns frames 0 4 8 2 6 10 26 30 34 38.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --target packages imageio-ffmpeg==0.8.1 decord2==3.4.0 "numpy<3" || exit 2
export PYTHONPATH=$PWD/packages
ffmpeg=$(python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
# Frame i has luma 16 + 4 i.
numbered="color=black:s=64x64:r=25,geq=lum='16+4*N':cb=128:cr=128"
cat > numbers_.py <<END
def number(frame):
    return round(float(frame.mean()) * 219 / 255 / 4)
END
"$ffmpeg" -v error -f lavfi -i "$numbered" -frames:v 40 -pix_fmt yuv420p -c:v mpeg4 -bf 2 -q:v 1 video.avi
python3 - 2> words <<END | tee seen
import decord
from numbers_ import number
reader = decord.VideoReader("video.avi")
print("in order:", [number(reader[i].asnumpy()) for i in range(40)] == list(range(40)))
reader = decord.VideoReader("video.avi")
print("batch:", *(number(frame) for frame in reader.get_batch(list(range(0, 40, 4))).asnumpy()))
print("first time below -1e17 s:", float(reader.get_frame_timestamp(0)[0]) < -1e17)
END
cat > expected <<END
in order: True
batch: 0 4 8 2 6 10 26 30 34 38
first time below -1e17 s: True
END
diff expected seen
