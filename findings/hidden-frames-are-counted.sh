#!/bin/sh
# decord2 3.4.0 and OpenCV 5.0 count the frames that an edit list hides. Of an MP4 that `ffmpeg -ss 0.52 -c copy` has
# cut, players show 27 frames. Both say 30; decord returns the last one four times, and OpenCV none for the last three
# numbers. decord's first time is -0.12 s.
#
# Penstock's `len` and numbers are those of the frames that are shown, from the packets' flags.
#
# Seen: decord len 30, 4 times frame 39, first time -0.12; OpenCV count 30, read 27; FFmpeg itself 27.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --target packages imageio-ffmpeg==0.8.1 decord2==3.4.0 opencv-python-headless==5.0.0.93 "numpy<3" || exit 2
export PYTHONPATH=$PWD/packages
ffmpeg=$(python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
# Frame i has luma 16 + 4 i.
numbered="color=black:s=64x64:r=25,geq=lum='16+4*N':cb=128:cr=128"
cat > numbers_.py <<END
def number(frame):
    return round(float(frame.mean()) * 219 / 255 / 4)
END
"$ffmpeg" -v error -f lavfi -i "$numbered" -frames:v 40 -pix_fmt yuv420p -c:v libx264 -crf 1 -bf 3 -g 10 whole.mp4
"$ffmpeg" -v error -ss 0.52 -i whole.mp4 -c copy cut.mp4
{
    echo "FFmpeg: $("$ffmpeg" -v error -i cut.mp4 -f framecrc - | grep -vc '^#')"
    python3 - 2> words <<END
import cv2, decord
from numbers_ import number
reader = decord.VideoReader("cut.mp4")
numbers = [number(reader[i].asnumpy()) for i in range(len(reader))]
print("decord:", len(reader), numbers.count(39), round(float(reader.get_frame_timestamp(0)[0]), 2))
capture, read = cv2.VideoCapture("cut.mp4"), 0
while capture.read()[0]:
    read += 1
print("OpenCV:", int(capture.get(cv2.CAP_PROP_FRAME_COUNT)), read)
END
} | tee seen
cat > expected <<END
FFmpeg: 27
decord: 30 4 -0.12
OpenCV: 30 27
END
diff expected seen
