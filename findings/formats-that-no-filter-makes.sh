#!/bin/sh
# FFmpeg 9's ffv1 and libjxl list pixel formats that FFmpeg reads, but makes of no other: it refuses to convert to them. Up to
# 7.0, it makes each format of these lists.
#
# Penstock's Encoder chooses a format of the list, by what the frames are. It leaves out what `ffmpeg -pix_fmts` doesn't call
# an output (`capabilities.made_pixel_formats`).
#
# Seen: FFmpeg 7.0.2: none; FFmpeg 9.0.2: half floats and a Bayer format for ffv1, packed floats for libjxl.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for version in 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    for encoder in ffv1 libjxl; do
        listed=$("$ffmpeg" -v error -h encoder=$encoder | sed -n 's/.*Supported pixel formats: //p')
        for format in $listed; do
            "$ffmpeg" -v quiet -f lavfi -i testsrc2=s=64x64 -frames:v 1 -vf format=$format -f null - ||
                echo "$version: $encoder lists $format, which is not made"
        done
    done | tee -a seen
done
cat > expected <<END
0.8.1: ffv1 lists yaf16le, which is not made
0.8.1: ffv1 lists grayf16le, which is not made
0.8.1: ffv1 lists gbrpf16le, which is not made
0.8.1: ffv1 lists bayer_rggb16le, which is not made
0.8.1: libjxl lists rgbf32le, which is not made
0.8.1: libjxl lists rgbaf32le, which is not made
END
diff expected seen
