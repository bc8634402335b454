#!/bin/sh
# FFmpeg writes codecs into AVI for which AVI has no name, without a word, and reads them back as raw video: H.265, EXR,
# BMP, TIFF, animated PNG and others. If a packet is as long as a raw frame, the frames are noise, and the status is 0;
# else reading is an error. `ffmpeg -i IN -c:v exr OUT.avi` makes such noise.
#
# Penstock's trial of an Encoder reads the file back for this reason (`_encoding/rehearsal.py`).
#
# Seen with FFmpeg 7.0.2 and 9.0.2: exr and bmp are read as 3 frames of rawvideo with status 0, tiff and libx265 as
# rawvideo with status 69.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for version in 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    for codec in exr bmp tiff libx265 ffv1; do
        "$ffmpeg" -v error -y -f lavfi -i testsrc=s=64x48:r=5 -frames:v 3 -c:v $codec video.avi 2> words
        read=$("$ffmpeg" -hide_banner -i video.avi 2>&1 | sed -n 's/.*Video: \([a-z0-9]*\).*/\1/p')
        "$ffmpeg" -v error -y -i video.avi -f rawvideo frames 2> words && status=0 || status=$?
        echo "$codec: read as $read, status $status, $(stat -c %s frames) bytes"
    done | tee -a seen
done
for version in 0.6.0 0.8.1; do
    cat <<END
exr: read as rawvideo, status 0, 27648 bytes
bmp: read as rawvideo, status 0, 27648 bytes
tiff: read as rawvideo, status 69, 0 bytes
libx265: read as rawvideo, status 69, 0 bytes
ffv1: read as ffv1, status 0, 36864 bytes
END
done > expected
diff expected seen
