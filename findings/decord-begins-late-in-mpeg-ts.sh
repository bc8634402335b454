#!/bin/sh
# decord2 3.4.0 reads an MPEG-TS from its second keyframe on, and repeats the last frame until it has as many as the
# packets. `len`, the times and the number of frames look right; no error is raised. H.264 with B-frames and MPEG-2 do
# so; H.264 without B-frames is right.
#
# Penstock's page for those who come from decord says so (`docs/migration/torchcodec.md`).
#
# Seen for 40 frames with a keyframe every 10: h264 without B-frames 0 … 39; h264 with them, and mpeg2video: 10 … 39, 39,
# 39, ….
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
cat > read.py <<END
import sys, decord
from numbers_ import number
reader = decord.VideoReader(sys.argv[1])
numbers = [number(reader[i].asnumpy()) for i in range(len(reader))]
print(f"{len(numbers)} frames from {numbers[0]}, {numbers.count(39)} of them the last")
END
for codec in "libx264 -bf 0" "libx264 -bf 2" "mpeg2video -q:v 1"; do
    # shellcheck disable=SC2086
    "$ffmpeg" -v error -y -f lavfi -i "$numbered" -frames:v 40 -pix_fmt yuv420p -g 10 -c:v $codec video.ts
    echo "$codec: $(python3 read.py video.ts 2> words)" | tee -a seen
done
cat > expected <<END
libx264 -bf 0: 40 frames from 0, 1 of them the last
libx264 -bf 2: 40 frames from 10, 11 of them the last
mpeg2video -q:v 1: 40 frames from 10, 11 of them the last
END
diff expected seen
