#!/bin/sh
# FFmpeg 9 multiplies colors by their alpha when it writes EXR, and doesn't divide them when it reads EXR as raw frames,
# but does for PNG. Raw floats that go through EXR come back darker; with 7.0 they came back as they were.
#
# Penstock's Encoder tells FFmpeg that the frames are multiplied already (`_encoding/plan.py`), so that its samples are
# stored as they are by each version.
#
# Seen for green 0.25 with alpha 0.5: FFmpeg 7.0.2 stores and returns 0.25; 9.0.2 stores and returns 0.125, with
# `setparams=alpha_mode=premultiplied` 0.25. PNG of 9.0.2's own file: red of 0.75 is 192 of 256, straight again.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -c 'import struct, sys
for value in (0.25, 0.5, 0.75, 0.5):  # green, blue, red, alpha
    sys.stdout.buffer.write(struct.pack("<16f", *[value] * 16))' > frame
green() { od -An -tf4 -N4 "$1" | tr -d ' '; }
for version in 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    {
        raw="-f rawvideo -pix_fmt gbrapf32le -s 4x4 -i frame"
        # shellcheck disable=SC2086
        "$ffmpeg" -v error -y $raw -frames:v 1 picture.exr
        "$ffmpeg" -v error -y -i picture.exr -f rawvideo read
        "$ffmpeg" -v error -y -i picture.exr picture.png
        red=$("$ffmpeg" -v error -i picture.png -f rawvideo -pix_fmt rgba - | od -An -tu1 -N1 | tr -d ' ')
        echo "$version: green $(green read), red in PNG $red"
        if [ "$version" = 0.8.1 ]; then
            # shellcheck disable=SC2086
            "$ffmpeg" -v error -y $raw -vf setparams=alpha_mode=premultiplied -frames:v 1 picture.exr
            "$ffmpeg" -v error -y -i picture.exr -f rawvideo read
            echo "$version, told: green $(green read)"
        fi
    } | tee -a seen
done
cat > expected <<END
0.6.0: green 0.25, red in PNG 192
0.8.1: green 0.125, red in PNG 192
0.8.1, told: green 0.25
END
diff expected seen
