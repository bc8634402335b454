#!/bin/sh
# NUT has no length of a packet. Whoever copies sound from it into MP4 loses the last packet: the edit list ends where
# that packet begins, for nothing tells how long it is. Of Opus that is 20 ms, of FLAC a frame, here 768 samples. FFmpeg
# says nothing. The same copy into Matroska keeps all.
#
# Penstock hands sound to its FFmpeg as NUT, and computes the lengths of copied packets by setts
# (`_LAST_DURATION` in `_encoding/sound.py`).
#
# Seen for 2 s of mono of 48,000 Hz, which are 96,000 samples. FFmpeg pads Opus to whole packets.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --no-deps --target packages imageio-ffmpeg==0.8.1 || exit 2
ffmpeg=$(PYTHONPATH=packages python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
for codec in libopus flac; do
    "$ffmpeg" -v error -f lavfi -i sine=r=48000:d=2 -c:a $codec $codec.mka
    "$ffmpeg" -v error -i $codec.mka -c copy $codec.direct.mp4
    "$ffmpeg" -v error -i $codec.mka -c copy $codec.nut
    "$ffmpeg" -v error -i $codec.nut -c copy $codec.through.mp4
    "$ffmpeg" -v error -i $codec.nut -c copy $codec.through.mka
    for name in $codec.direct.mp4 $codec.nut $codec.through.mp4 $codec.through.mka; do
        "$ffmpeg" -v error -y -i $name -f s16le samples
        echo "$name: $(($(wc -c < samples) / 2)) samples" | tee -a seen
    done
done
cat > expected <<END
libopus.direct.mp4: 96624 samples
libopus.nut: 96648 samples
libopus.through.mp4: 95688 samples
libopus.through.mka: 96648 samples
flac.direct.mp4: 96000 samples
flac.nut: 96000 samples
flac.through.mp4: 95232 samples
flac.through.mka: 96000 samples
END
diff expected seen
