#!/bin/sh
# FFmpeg writes gray BMP and PCX with a palette of 256 grays, and reads them back as pal8. Converted to gray, 36 of the
# 256 values are one off. By way of bgra or rgb24 all are right.
#
# Penstock's Decoder converts pictures with a palette by way of bgra (`_decoding/plan.py`).
#
# Seen with FFmpeg 4.2.2, 7.0.2 and 9.0.2.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)))' > grays
for version in 0.5.1 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    for ending in bmp pcx; do
        "$ffmpeg" -v error -y -f rawvideo -pix_fmt gray -s 16x16 -i grays picture.$ending
        for filters in format=gray format=bgra,format=gray; do
            "$ffmpeg" -v error -y -i picture.$ending -vf $filters -f rawvideo read
            echo "$ending, $filters: $(cmp -l grays read | wc -l) grays differ"
        done
    done | tee -a seen
done
for version in 0.5.1 0.6.0 0.8.1; do
    for ending in bmp pcx; do
        echo "$ending, format=gray: 36 grays differ"
        echo "$ending, format=bgra,format=gray: 0 grays differ"
    done
done > expected
diff expected seen
