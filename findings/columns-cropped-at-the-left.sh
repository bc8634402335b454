#!/bin/sh
# An H.264 stream may hide columns at both sides of its pictures (ITU-T H.264, frame_crop_left_offset). libav hides only
# as many at the left as keep rows aligned in memory, here none of 8, and says a wider picture without a word. With the
# codec flag "unaligned" it hides all. What an FFmpeg does without the flag depends on its version.
#
# Penstock sets the flag for every decoder (`_facts/opening.py`).
#
# Seen for pictures of 96x64 that hide 8 columns at each side.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for version in 0.5.1 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    number=$("$ffmpeg" -version | sed -n '1s/ffmpeg version \([0-9.n]*\).*/\1/p' | tr -d n)
    "$ffmpeg" -v error -y -f lavfi -i testsrc=s=96x64:r=10:d=1 -pix_fmt yuv420p -c:v libx264 \
        -bsf:v h264_metadata=crop_left=8:crop_right=8 hidden.mp4
    for flags in "" "-flags unaligned"; do
        # shellcheck disable=SC2086
        "$ffmpeg" -v error -y $flags -i hidden.mp4 -frames:v 1 -f framecrc list
        echo "FFmpeg $number, ${flags:-no flags}: $(sed -n 's/#dimensions 0: //p' list)" | tee -a seen
    done
done
python3 -m pip install --quiet --target packages av==18.1.0 || exit 2
cat > run.py <<'END'
import av

for flag in (0, 1):
    with av.open("hidden.mp4") as file:
        file.streams.video[0].codec_context.flags |= flag
        frame = next(file.decode(video=0))
        print(f"PyAV {av.__version__}, flags |= {flag}: {frame.width}x{frame.height}")
END
PYTHONPATH=packages python3 run.py | tee -a seen
cat > expected <<END
FFmpeg 4.2.2, no flags: 88x64
FFmpeg 4.2.2, -flags unaligned: 80x64
FFmpeg 7.0.2, no flags: 88x64
FFmpeg 7.0.2, -flags unaligned: 80x64
FFmpeg 9.0.2, no flags: 80x64
FFmpeg 9.0.2, -flags unaligned: 80x64
PyAV 18.1.0, flags |= 0: 88x64
PyAV 18.1.0, flags |= 1: 80x64
END
diff expected seen
