#!/bin/sh
# A fragmented MP4 made as many guides say (`empty_moov+frag_keyframe`) has no edit list: with B-frames the picture
# begins two frames late, and with AAC the sound is 1024 samples late, so the two are apart by the difference, without a
# word. With `delay_moov` beside them, FFmpeg waits for the first packets and writes the edit list.
#
# Penstock's `crash_safe=True` sets `delay_moov` for this reason (`_encoding/crash_safety.py`).
#
# Seen at 10 frames a second with two B-frames, FFmpeg 7.0.2 and 9.0.2: first frame at 2 (of 1/10 s) without, at 0 with
# `delay_moov`; first packet of AAC at 0 without, at -1024 with it.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for version in 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    first() { # the time of the first frame or packet
        "$ffmpeg" -v error -y -copyts -i part.mp4 "$@" -f framecrc list
        grep -v '^#' list | head -n 1 | cut -d , -f 3 | tr -d ' '
    }
    for flags in faststart empty_moov+frag_keyframe empty_moov+frag_keyframe+delay_moov; do
        "$ffmpeg" -v error -y -f lavfi -i testsrc=r=10:s=64x64:d=1 -f lavfi -i sine=r=48000:d=1 \
            -c:v libx264 -bf 2 -c:a aac -movflags $flags part.mp4
        echo "$version: $flags: first frame at $(first -map 0:v), first packet of audio at $(first -map 0:a -c copy)"
    done | tee -a seen
done
cat > expected <<END
0.6.0: faststart: first frame at 0, first packet of audio at -1024
0.6.0: empty_moov+frag_keyframe: first frame at 2, first packet of audio at 0
0.6.0: empty_moov+frag_keyframe+delay_moov: first frame at 0, first packet of audio at -1024
0.8.1: faststart: first frame at 0, first packet of audio at -1024
0.8.1: empty_moov+frag_keyframe: first frame at 2, first packet of audio at 0
0.8.1: empty_moov+frag_keyframe+delay_moov: first frame at 0, first packet of audio at -1024
END
diff expected seen
