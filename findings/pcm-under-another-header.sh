#!/bin/sh
# FFmpeg writes PCM of 24 bits that was made from 32-bit samples into MP4 under a header that says 32 bits, and PCM of
# 64 bits into MOV under the tag of 16 bits. It ends with status 0, and every reader plays noise. PCM of 24 bits in MOV
# is right, and so is PCM of 24 bits in MP4 that was made from 16-bit samples.
#
# Penstock's trial of an Encoder compares the samples of lossless audio for this reason (`_encoding/compare.py`).
#
# Seen with FFmpeg 7.0.2 and 9.0.2 alike.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -c 'import struct, sys
samples = [(i * 7919 % (1 << 16) - (1 << 15)) << 16 for i in range(4800)]
sys.stdout.buffer.write(struct.pack("<4800i", *samples))
open("samples16", "wb").write(struct.pack("<4800h", *(one >> 16 for one in samples)))' > samples32
for version in 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    write() { # the bits of the input, the codec, the container
        "$ffmpeg" -v error -y -f "s$1le" -ar 48000 -ac 1 -i "samples$1" -c:a "$2" "audio.$3"
        "$ffmpeg" -v error -y -i "audio.$3" -f s32le read
        codec=$("$ffmpeg" -hide_banner -i "audio.$3" 2>&1 | sed -n 's/.*Audio: \([a-z0-9_]*\).*/\1/p')
        cmp -s samples32 read && same="the same" || same=other
        echo "$2 from $1 bits in $3: read as $codec, $((100 * $(stat -c %s read) / 19200)) % of its length, $same samples"
    }
    {
        write 32 pcm_s24le mp4
        write 16 pcm_s24le mp4
        write 32 pcm_s24le mov
        write 32 pcm_s64le mov
    } | tee -a seen
done
for version in 0.6.0 0.8.1; do
    cat <<END
pcm_s24le from 32 bits in mp4: read as pcm_s32le, 75 % of its length, other samples
pcm_s24le from 16 bits in mp4: read as pcm_s24le, 100 % of its length, the same samples
pcm_s24le from 32 bits in mov: read as pcm_s24le, 100 % of its length, the same samples
pcm_s64le from 32 bits in mov: read as pcm_s16le, 100 % of its length, other samples
END
done > expected
diff expected seen
