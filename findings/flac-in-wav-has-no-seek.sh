#!/bin/sh
# FFmpeg seeks in FLAC in WAV by bytes, into the middle of a FLAC frame. Versions 4.2.2 and 7.0.2 then lose the audio up to
# the next frame that they find, half a second and more, and deliver the rest as if it began at the place asked for. They
# report errors, but exit with status 0. Near the end, 4.2.2 delivers nothing, without an error. Version 9.0.2 delivers all
# samples. FLAC in a FLAC file is whole in all versions.
#
# Penstock doesn't seek in such a file: it decodes all before the place (`docs/how-to/sound.md`).
#
# Seen for 4 s of mono of 48,000 Hz, so that -ss 2 leaves 96,000 samples, and -ss 3.5 leaves 24,000.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for version in 0.5.1 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    for name in sound.flac sound.wav; do
        "$ffmpeg" -v error -y -f lavfi -i sine=r=48000:d=4 -c:a flac $name
        for seconds in 2 3.5; do
            status=0
            "$ffmpeg" -v error -ss $seconds -i $name -f s16le -y samples 2> errors || status=$?
            count=$(($(wc -c < samples) / 2))
            echo "$version: $name -ss $seconds: $count samples, status $status" | tee -a seen
        done
    done
    [ $version != 0.5.1 ] || echo "$version: errors of the last: $(wc -l < errors)" | tee -a seen
done
cat > expected <<END
0.5.1: sound.flac -ss 2: 96000 samples, status 0
0.5.1: sound.flac -ss 3.5: 24000 samples, status 0
0.5.1: sound.wav -ss 2: 72192 samples, status 0
0.5.1: sound.wav -ss 3.5: 0 samples, status 0
0.5.1: errors of the last: 0
0.6.0: sound.flac -ss 2: 96000 samples, status 0
0.6.0: sound.flac -ss 3.5: 24000 samples, status 0
0.6.0: sound.wav -ss 2: 72192 samples, status 0
0.6.0: sound.wav -ss 3.5: 24000 samples, status 0
0.8.1: sound.flac -ss 2: 96000 samples, status 0
0.8.1: sound.flac -ss 3.5: 24000 samples, status 0
0.8.1: sound.wav -ss 2: 96000 samples, status 0
0.8.1: sound.wav -ss 3.5: 24000 samples, status 0
END
diff expected seen
