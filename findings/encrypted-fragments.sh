#!/bin/sh
# Which fragmented MP4 can be encrypted depends on FFmpeg's version, and the other kind is written with status 0 and can't
# be read with its key by any version: 7.0.2 writes a header that is refused with empty_moov, 9.0.2 noise without it.
#
# Penstock's trial of an Encoder reads the file back (`_encoding/rehearsal.py`); the tests of encrypted files write whole
# ones.
#
# Seen for 50 frames of H.264 with AAC, in frames that 7.0.2 and 9.0.2 read.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
program() {
    python3 -m pip install --quiet --no-deps --target "$1" "imageio-ffmpeg==$1" || exit 2
    PYTHONPATH=$1 python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())'
}
old=$(program 0.6.0) new=$(program 0.8.1)
key=00112233445566778899aabbccddeeff
for ffmpeg in "$old" "$new"; do
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    for flags in faststart frag_keyframe frag_keyframe+empty_moov; do
        "$ffmpeg" -v error -y -f lavfi -i testsrc=s=64x48 -f lavfi -i sine -t 2 -pix_fmt yuv420p -c:v libx264 -c:a aac \
            -movflags $flags -encryption_scheme cenc-aes-ctr -encryption_key $key -encryption_kid $key video.mp4
        line="$flags:"
        for reader in "$old" "$new"; do
            "$reader" -v quiet -decryption_key $key -i video.mp4 -map 0:v -f framecrc - > list || :
            line="$line $(grep -vc '^#' list || :)"
        done
        echo "$line" | tee -a seen
    done
done
cat > expected <<END
faststart: 50 50
frag_keyframe: 50 50
frag_keyframe+empty_moov: 0 0
faststart: 50 50
frag_keyframe: 0 0
frag_keyframe+empty_moov: 50 50
END
diff expected seen
