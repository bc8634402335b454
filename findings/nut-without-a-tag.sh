#!/bin/sh
# FFmpeg's NUT muxer has no tag for p010le and grayf32le (and, up to 7.0, gbrpf32le). It writes that of rgb555le without
# a word: a reader sees another pixel format of the right size, and reading ends with status 0.
#
# Penstock's Encoder hands frames to FFmpeg in NUT: it looks for that tag in the header (`_encoding/nut.py`), and refuses
# such formats if they have times or audio.
#
# Seen: FFmpeg 7.0.2: p010le, grayf32le and gbrpf32le are read back as rgb555le; FFmpeg 9.0.2: p010le and grayf32le.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for version in 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    for format in p010le grayf32le gbrpf32le yuv420p10le; do
        "$ffmpeg" -v error -y -f lavfi -i testsrc2=s=64x64 -frames:v 2 -pix_fmt $format -c:v rawvideo video.nut
        "$ffmpeg" -v error -i video.nut -f null -
        read=$("$ffmpeg" -hide_banner -i video.nut 2>&1 | sed -n 's/.*Video: rawvideo ([^)]*), \([a-z0-9]*\).*/\1/p')
        echo "$version: $format is read as $read"
    done | tee -a seen
done
cat > expected <<END
0.6.0: p010le is read as rgb555le
0.6.0: grayf32le is read as rgb555le
0.6.0: gbrpf32le is read as rgb555le
0.6.0: yuv420p10le is read as yuv420p10le
0.8.1: p010le is read as rgb555le
0.8.1: grayf32le is read as rgb555le
0.8.1: gbrpf32le is read as gbrpf32le
0.8.1: yuv420p10le is read as yuv420p10le
END
diff expected seen
