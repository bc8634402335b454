#!/bin/sh
# FFmpeg's MXF muxer writes H.264 with B-frames so that its own demuxer gives wrong times: of 20 frames at 30 a second,
# the second one comes at 3/30 s, and the last three have the same time. All frames are there, in the right order.
#
# Penstock's trial of an Encoder compares times for this reason; its Decoder takes MXF's frames as evenly spaced.
#
# Seen with FFmpeg 7.0.2 and 9.0.2: 0 3 4 5 … 18 19 19 19. Right is 0 to 19, as MP4 gives.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for version in 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    for ending in mxf mp4; do
        "$ffmpeg" -v error -y -f lavfi -i testsrc=s=64x48:r=30 -frames:v 20 -pix_fmt yuv420p -c:v libx264 "video.$ending"
        "$ffmpeg" -v error -y -copyts -i "video.$ending" -fps_mode passthrough -f framecrc list 2> words
        echo "$ending:" $(grep -v '^#' list | cut -d , -f 3)
    done | tee -a seen
done
for version in 0.6.0 0.8.1; do
    echo "mxf: 0 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 19 19"
    echo "mp4: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19"
done > expected
diff expected seen
