#!/bin/sh
# FFmpeg copies FLAC into ASF, and reads other times from it than were in the source: the second packet has the time of
# the eleventh, and all later ones are as late, so that the sound seems to pause after the first packet. There is no
# error or warning.
#
# Penstock takes no pause from such times (`mistimed` in `_formats/containers.py`).
#
# Seen for FLAC of 44,100 Hz, whose packets have 4,608 samples, or 104 ms, by FFmpeg 4.2.2 and 7.0.2, and 1,024 samples,
# or 23 ms, by FFmpeg 9.0.2. Times are in samples in FLAC, and in ms in ASF.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for version in 0.5.1 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -v error -y -f lavfi -i sine=r=44100:d=2 -c:a flac sound.flac
    "$ffmpeg" -v error -y -i sound.flac -c copy sound.wma
    for name in sound.flac sound.wma; do
        times=$("$ffmpeg" -v error -i $name -c copy -copyts -f framecrc - \
            | sed '/^#/d' | head -n 3 | cut -d , -f 3 | tr -d '\n' | tr -s ' ')
        echo "$version: $name: $times" | tee -a seen
    done
done
cat > expected <<END
0.5.1: sound.flac:  0 4608 9216
0.5.1: sound.wma:  0 1045 1149
0.6.0: sound.flac:  0 4608 9216
0.6.0: sound.wma:  0 1045 1149
0.8.1: sound.flac:  0 1024 2048
0.8.1: sound.wma:  0 232 255
END
diff expected seen
