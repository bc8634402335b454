#!/bin/sh
# AAC begins with 1,024 samples of priming that nobody is to hear. When FFmpeg copies it from MP4 into Matroska with
# -copypriorss 0, it leaves out the packet of the priming. Version 9.0.2 still writes the length of the priming into the
# Matroska file (CodecDelay), so that readers cut 1,024 samples of the sound instead. Version 7.0.2 writes none there.
#
# Penstock's renders drop that packet where the container has no room for priming, and go through NUT in between, which
# keeps nothing of the priming (`rendering/join.py`).
#
# Seen for 2 s of mono of 48,000 Hz, which are 96,000 samples. The encoder pads the last packet to 96,256, and version
# 9.0.2 cuts the padding where the file states it.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for version in 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -v error -y -f lavfi -i sine=r=48000:d=2 -c:a aac sound.mp4
    "$ffmpeg" -v error -y -i sound.mp4 -map 0:a -c copy -copypriorss:a 0 direct.mkv
    "$ffmpeg" -v error -y -i sound.mp4 -map 0:a -c copy -copypriorss:a 0 between.nut
    "$ffmpeg" -v error -y -i between.nut -map 0:a -c copy through.mkv
    for name in sound.mp4 direct.mkv through.mkv; do
        "$ffmpeg" -v error -y -i $name -f s16le samples
        echo "$version: $name: $(($(wc -c < samples) / 2)) samples" | tee -a seen
    done
done
cat > expected <<END
0.6.0: sound.mp4: 96256 samples
0.6.0: direct.mkv: 96256 samples
0.6.0: through.mkv: 96256 samples
0.8.1: sound.mp4: 96000 samples
0.8.1: direct.mkv: 94976 samples
0.8.1: through.mkv: 96256 samples
END
diff expected seen
