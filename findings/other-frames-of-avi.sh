#!/bin/sh
# Packets of MPEG-4 with B-frames in AVI have no presentation times. decord2 3.4.0 and spdl 0.8.0 return other frames of
# such a file than those asked for, without an error. decord's times are -3.7e17 s, many of spdl's 0; a window of spdl's leaves
# frames out. One frame after another is right with both.
#
# Penstock's page for those who come from decord says so (`docs/migration/torchcodec.md`). Its own index of such a file is
# made by decoding, not by packets' times.
#
# Seen: decord's get_batch([0, 4, … 36]) returns frames 0 4 8 2 6 10 26 30 34 38; spdl's sample_decode_video([0, 5, 9, 12,
# 30]) returns 0 5 9 14 32; from 0.5 to 0.9 s at 25 frames a second spdl returns 13 14 16 17 19 20.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --target packages imageio-ffmpeg==0.8.1 decord2==3.4.0 spdl==0.8.0 "numpy<3" || exit 2
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
python3 - 2> words <<END | tee -a seen
import spdl.io
from numbers_ import number
def numbers(packets):
    return [number(frame) for frame in spdl.io.to_numpy(spdl.io.convert_frames(spdl.io.decode_packets(packets)))]
packets = spdl.io.demux_video("video.avi")
print("times that are 0:", packets.get_timestamps().count(0), "of", len(packets))
print("in order:", numbers(packets) == list(range(40)))
sampled = spdl.io.sample_decode_video(spdl.io.demux_video("video.avi"), [0, 5, 9, 12, 30])
print("sample:", *(number(spdl.io.to_numpy(spdl.io.convert_frames(one))) for one in sampled))
print("window:", *numbers(spdl.io.demux_video("video.avi", timestamp=(0.5, 0.9))))
END
cat > expected <<END
in order: True
batch: 0 4 8 2 6 10 26 30 34 38
first time below -1e17 s: True
times that are 0: 14 of 40
in order: True
sample: 0 5 9 14 32
window: 13 14 16 17 19 20
END
diff expected seen
