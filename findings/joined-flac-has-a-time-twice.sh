#!/bin/sh
# Three Ogg FLAC files, one after another in one file, are a chained stream. FFmpeg 9 gives two of its packets the same
# time, 96 ms apart in the sound: who drops what overlaps loses a packet. FFmpeg 4.2 and 7.0 don't. All samples are
# there with each.
#
# Penstock orders the packets of a sound by their samples for this reason (`_encoding/sound_packets.py`).
#
# Seen for files that 7.0.2 wrote, the last packets' times, in samples: 124416 129024 133632 by 7.0.2, 130776 130776
# 135384 by 9.0.2.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
program() {
    python3 -m pip install --quiet --no-deps --target "$1" "imageio-ffmpeg==$1" || exit 2
    PYTHONPATH=$1 python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())'
}
old=$(program 0.6.0) new=$(program 0.8.1)
"$old" -v error -f lavfi -i sine=r=48000:d=1.2345 -c:a flac long.oga
"$old" -v error -f lavfi -i sine=r=48000:d=0.53 -c:a flac short.oga
cat long.oga short.oga long.oga > joined.oga
for ffmpeg in "$old" "$new"; do
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    "$ffmpeg" -v error -y -i joined.oga -c:a pcm_s16le -f framecrc list 2> words
    times=$(grep -v '^#' list | cut -d , -f 3 | tail -n 3)
    samples=$("$ffmpeg" -v error -i joined.oga -f s16le - 2> words | wc -c)
    echo "last times:" $times "of $((samples / 2)) samples" | tee -a seen
done
cat > expected <<END
last times: 124416 129024 133632 of 143952 samples
last times: 130776 130776 135384 of 143952 samples
END
diff expected seen
