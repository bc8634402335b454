#!/bin/sh
# FFmpeg's scaler takes 16-bit RGB for 8-bit RGB times 256, though white is 65535, which is 255 times 257. White in
# limited YUV of 10 bits (luma 940) becomes 65283 in each channel; white in rgb48le becomes luma 943 in 10 bits and 236
# in 8, beyond the range. White in rgb24 becomes 940.
#
# Penstock converts 16-bit RGB by its own code for this reason.
#
# Seen with FFmpeg 4.2.2, 7.0.2 and 9.0.2 alike.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
write() { python3 -c "import sys; sys.stdout.buffer.write($1)"; }
write 'b"\xac\x03" * 4096 + b"\x00\x02" * 8192' > white.yuv444p10le
write 'b"\xff" * 6 * 4096' > white.rgb48le
write 'b"\xff" * 3 * 4096' > white.rgb24
for version in 0.5.1 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    first() { # the first samples of white in one format, converted to another: their type for od, and bytes
        "$ffmpeg" -v error -y -f rawvideo -pix_fmt "$1" -s 64x64 -i "white.$1" -pix_fmt "$2" -f rawvideo converted
        echo "$version: $1 to $2:" $(od -An "-t$3" "-N$4" converted)
    }
    {
        first yuv444p10le rgb48le u2 6
        first rgb48le yuv444p10le u2 2
        first rgb48le yuv444p u1 1
        first rgb24 yuv444p10le u2 2
    } | tee -a seen
done
for version in 0.5.1 0.6.0 0.8.1; do
    cat <<END
$version: yuv444p10le to rgb48le: 65283 65283 65283
$version: rgb48le to yuv444p10le: 943
$version: rgb48le to yuv444p: 236
$version: rgb24 to yuv444p10le: 940
END
done > expected
diff expected seen
