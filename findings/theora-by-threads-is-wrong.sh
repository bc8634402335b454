#!/bin/sh
# FFmpeg decodes Theora with several threads, by default as many as there are CPUs, to pictures that differ from one run
# to the next. Nothing is said, and the exit status is 0. Of moving test pictures all runs agreed, and with one thread those
# of any.
#
# Penstock decodes Theora, VP3 and VP4, which have one decoder, with one thread (`right_threads` in `_formats/codecs.py`).
#
# Seen with FFmpeg 5.1, 7.1 and 9.0.2, and with libav in PyAV 18.1 and 19.0, where 12 to 29 of 60 and 71 of
# 200 runs with 16 threads were wrong.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --target packages imageio-ffmpeg==0.8.1 numpy==2.4.6 || exit 2
ffmpeg=$(PYTHONPATH=packages python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
# Six pictures of 30 × 40 gray blocks at random.
PYTHONPATH=packages python3 - <<'END' > pictures
import sys
import numpy as np

blocks = np.random.default_rng(1).integers(0, 256, (6, 30, 40), np.uint8)
sys.stdout.buffer.write(np.kron(blocks, np.ones((1, 8, 8), np.uint8)).tobytes())
END
"$ffmpeg" -v error -f rawvideo -pix_fmt gray -s 320x240 -r 25 -i pictures -c:v libtheora -q:v 8 -pix_fmt yuv420p video.ogv
decoded() {
    "$ffmpeg" -v error -threads "$1" -i video.ogv -f rawvideo - | md5sum
}
kinds() {
    for _ in $(seq 100); do decoded "$1"; done | sort -u | wc -l
}
echo "100 runs with one thread: $(kinds 1) video" | tee seen
found=$(kinds 16)
echo "100 runs with 16 threads: $found videos"
[ "$found" -eq 1 ] || echo "100 runs with 16 threads: several videos" >> seen
cat > expected <<END
100 runs with one thread: 1 video
100 runs with 16 threads: several videos
END
diff expected seen
