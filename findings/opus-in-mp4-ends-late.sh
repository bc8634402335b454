#!/bin/sh
# Opus in MP4 is 648 samples longer than what was encoded, with each FFmpeg: the edit list cuts the samples before the
# first one, but nothing cuts those that fill the last packet. In WebM and Ogg the same sound has its length.
#
# Penstock's docs have a row for it (`docs/containers.md`).
#
# Seen, for 48,000 samples: MP4 48648, WebM 48000, Ogg 48000, with FFmpeg 7.0.2 and 9.0.2.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for version in 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    for ending in mp4 webm ogg; do
        "$ffmpeg" -v error -y -f lavfi -i sine=r=48000:d=1 -c:a libopus "tone.$ending"
        bytes=$("$ffmpeg" -v error -i "tone.$ending" -f s16le - | wc -c)
        echo "$version: $ending: $((bytes / 2)) samples"
    done | tee -a seen
done
cat > expected <<END
0.6.0: mp4: 48648 samples
0.6.0: webm: 48000 samples
0.6.0: ogg: 48000 samples
0.8.1: mp4: 48648 samples
0.8.1: webm: 48000 samples
0.8.1: ogg: 48000 samples
END
diff expected seen
