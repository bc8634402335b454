#!/bin/sh
# An edit list of MP4 may pause: an entry whose media time is -1 shows nothing for a while, one whose rate is 0 holds a
# frame (ISO/IEC 14496-12, 8.6.6). FFmpeg shows the frames that follow in the media there, so that 10 stored frames
# become 15, without a word; those after the pause are shown twice.
#
# Penstock warns, because its count is higher than the container's (`_facts/completeness.py`).
#
# Seen for frames 0 to 9 at 10 a second, an edit list of 0.5 s, a pause of 0.5 s and 0.5 s from frame 5 on, FFmpeg 4.2.2,
# 7.0.2 and 9.0.2.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > edit.py <<END
import struct, sys
whole, edited, media_time, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
data = bytearray(open(whole, "rb").read())
entries = [(500, 0, 1), (500, media_time, rate), (500, 5120, 1)]  # ms, units of 1/10240 s, rate
box = struct.pack(">4sII", b"elst", 0, 3) + b"".join(struct.pack(">iiHH", *one, 0) for one in entries)
box = struct.pack(">I", len(box) + 4) + box
at = data.index(b"elst") - 4
(size,) = struct.unpack_from(">I", data, at)
for parent in (b"edts", b"trak", b"moov"):  # the frames lie before them
    begins = data.rindex(parent, 0, at) - 4
    struct.pack_into(">I", data, begins, struct.unpack_from(">I", data, begins)[0] + len(box) - size)
data[at : at + size] = box
open(edited, "wb").write(data)
END
for version in 0.5.1 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    "$ffmpeg" -v error -y -f lavfi -i testsrc=s=64x48:r=10:d=1 -pix_fmt yuv420p -c:v libx264 -bf 0 -g 1 whole.mp4
    passthrough="-fps_mode passthrough"
    [ $version != 0.5.1 ] || passthrough="-vsync passthrough"
    for kind in gap hold; do
        [ $kind = gap ] && pause="-1 1" || pause="5120 0"
        # shellcheck disable=SC2086
        python3 edit.py whole.mp4 $kind.mp4 $pause
        # shellcheck disable=SC2086
        "$ffmpeg" -v error -y -i $kind.mp4 $passthrough -f framecrc list 2> words
        frames=$(grep -v '^#' list | cut -d , -f 6 | sort | uniq -c | awk '{ all += $1; if ($1 > 1) twice += 1 } END { print all, twice + 0 }')
        echo "$version: $kind: frames, and those shown twice: $frames" | tee -a seen
    done
done
for version in 0.5.1 0.6.0 0.8.1; do
    echo "$version: gap: frames, and those shown twice: 15 5"
    echo "$version: hold: frames, and those shown twice: 15 5"
done > expected
diff expected seen
