#!/bin/sh
# FFV1 of level 3, which FFmpeg 9.0 writes by default and archives ask for, isn't lossless for yuv411p and yuv410p at some
# widths that 4 doesn't divide, such as 37: the last column of chroma is lost, without a word, in the file itself. Level 1
# is lossless, and so is yuv420p at that width.
#
# Penstock's Encoder refuses sizes that chroma doesn't divide (`odd_size`).
#
# Seen for three frames of 37x21, written and read by FFmpeg 7.0.2 and 9.0.2: 126 bytes of yuv411p differ with level 3.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -c 'import random; r = random.Random(0)
open("yuv411p", "wb").write(r.randbytes(3 * (37 * 21 + 2 * 10 * 21)))
open("yuv420p", "wb").write(r.randbytes(3 * (37 * 21 + 2 * 19 * 11)))'
program() {
    python3 -m pip install --quiet --no-deps --target "$1" "imageio-ffmpeg==$1" || exit 2
    PYTHONPATH=$1 python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())'
}
old=$(program 0.6.0) new=$(program 0.8.1)
for ffmpeg in "$old" "$new"; do
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    for format in yuv411p yuv420p; do
        for level in 1 3; do
            "$ffmpeg" -v error -y -f rawvideo -pix_fmt $format -s 37x21 -i $format -c:v ffv1 -level $level video.mkv
            for reader in "$old" "$new"; do
                "$reader" -v error -y -i video.mkv -f rawvideo read
                echo "$format, level $level: $(cmp -l $format read | wc -l) bytes differ"
            done
        done
    done | tee -a seen
done
for _ in old new; do
    for case in "yuv411p, level 1: 0" "yuv411p, level 3: 126" "yuv420p, level 1: 0" "yuv420p, level 3: 0"; do
        echo "$case bytes differ"
        echo "$case bytes differ"
    done
done > expected
diff expected seen
