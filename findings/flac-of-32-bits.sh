#!/bin/sh
# FLAC of 32 bits, which FFmpeg has written since 6.0, is decoded to nothing by the FFmpeg before (4.2 here, 5.1, too):
# it takes the file for one with audio, writes no sample, prints no error at `-v error`, and ends with status 0.
#
# Penstock counts an audio track without a sample as a failure, whatever the status, because of this.
#
# Seen: FFmpeg 4.2.2: 0 bytes, status 0. FFmpeg 7.0.2 and 9.0.2: 96000 bytes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
program() {
    python3 -m pip install --quiet --no-deps --target "$1" "imageio-ffmpeg==$1" || exit 2
    PYTHONPATH=$1 python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())'
}
old=$(program 0.5.1) middle=$(program 0.6.0) new=$(program 0.8.1)
"$new" -v error -f lavfi -i sine=r=48000:d=0.5 -sample_fmt s32 -bits_per_raw_sample 32 -strict -2 tone.flac
for ffmpeg in "$old" "$middle" "$new"; do
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    "$ffmpeg" -v error -i tone.flac -f s32le tone.raw 2> words && status=0 || status=$?
    echo "$(wc -c < tone.raw) bytes, status $status, $(grep -c . words) lines of errors" | tee -a seen
    rm tone.raw
done
cat > expected <<END
0 bytes, status 0, 0 lines of errors
96000 bytes, status 0, 0 lines of errors
96000 bytes, status 0, 0 lines of errors
END
diff expected seen
