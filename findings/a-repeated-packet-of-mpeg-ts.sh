#!/bin/sh
# MPEG-TS may send a packet twice, one right after the other with the same continuity counter, against losses on the way
# (ISO/IEC 13818-1, 2.4.3.3). FFmpeg takes both for data, so that the picture is damaged. It exits with status 0, and often
# reports no error, either.
#
# Penstock raises a DecoderError at that frame (`docs/containers.md`).
#
# Seen with FFmpeg 9.0.2 for 60 frames of H.264: 1 of them differs.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > repeat.py <<'END'
data = open("video.ts", "rb").read()
packets = [data[at : at + 188] for at in range(0, len(data), 188)]
# One with nothing but a payload, in the middle of the file.
place = next(at for at in range(len(packets) // 2, len(packets)) if packets[at][1:4] == bytes([1, 0, packets[at][3]])
             and packets[at][3] >> 4 == 1)
packets.insert(place, packets[place])
open("repeated.ts", "wb").write(b"".join(packets))
END
python3 -m pip install --quiet --no-deps --target packages imageio-ffmpeg==0.8.1 || exit 2
ffmpeg=$(PYTHONPATH=packages python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
"$ffmpeg" -v error -f lavfi -i testsrc2=size=320x240:rate=30 -frames:v 60 -c:v libx264 -g 1 -threads 1 video.ts
python3 repeat.py
for name in video repeated; do
    status=0
    "$ffmpeg" -v quiet -i $name.ts -f framecrc $name.frames || status=$?
    echo "$name: $(grep -vc '^#' $name.frames) frames, status $status" | tee -a seen
done
echo "$(diff video.frames repeated.frames | grep -c '^>') differs" | tee -a seen
cat > expected <<END
video: 60 frames, status 0
repeated: 60 frames, status 0
1 differs
END
diff expected seen
