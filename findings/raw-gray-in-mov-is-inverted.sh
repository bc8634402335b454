#!/bin/sh
# FFmpeg writes raw gray frames into MOV, and reads its own file back as their negative: 0 is 255. In AVI they are as
# they were. It ends with status 0.
#
# Penstock reads its file back for this reason, and warns of another pixel format (`_encoding/compare.py`).
#
# Seen with FFmpeg 4.2.2, 7.0.2 and 9.0.2.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 12)' > frame
for version in 0.5.1 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    for ending in mov avi; do
        "$ffmpeg" -v error -y -f rawvideo -pix_fmt gray -s 64x48 -i frame -c:v rawvideo "video.$ending"
        "$ffmpeg" -v error -y -i "video.$ending" -f rawvideo read
        echo "$version: $ending: 0 1 2 3 are read as" $(od -An -tu1 -N4 read)
    done | tee -a seen
done
for version in 0.5.1 0.6.0 0.8.1; do
    echo "$version: mov: 0 1 2 3 are read as 255 254 253 252"
    echo "$version: avi: 0 1 2 3 are read as 0 1 2 3"
done > expected
diff expected seen
