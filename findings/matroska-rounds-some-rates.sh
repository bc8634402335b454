#!/bin/sh
# A constant rate of 60000/1001 or 48000/1001 isn't read back from Matroska, whose times have units of 1 ms: libav's
# average_rate and guessed_rate of a minute's part are 19001/317 and 7001/146, though FFmpeg wrote the rate to the file
# (DefaultDuration), and 30000/1001 and 24000/1001 are read exactly. Who writes a copy at that rate drifts.
#
# Penstock takes the usual rate that such a rate was rounded from, where the frames' times agree.
#
# Seen with PyAV 18.1.0, of files by FFmpeg 7.0.2 and 9.0.2 alike.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --target pyav av==18.1.0 || exit 2
cat > rate.py <<END
import sys, av
with av.open(sys.argv[1]) as file:
    stream = file.streams.video[0]
    print(sys.argv[2], "is read as", stream.average_rate, stream.guessed_rate)
END
for version in 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    for rate in 24000/1001 30000/1001 48000/1001 60000/1001; do
        "$ffmpeg" -v error -y -f lavfi -i testsrc=s=64x48:r=$rate -frames:v 60 -pix_fmt yuv420p -c:v libx264 video.mkv
        PYTHONPATH=pyav python3 rate.py video.mkv $rate
    done | tee -a seen
done
for version in 0.6.0 0.8.1; do
    cat <<END
24000/1001 is read as 24000/1001 24000/1001
30000/1001 is read as 30000/1001 30000/1001
48000/1001 is read as 7001/146 7001/146
60000/1001 is read as 19001/317 19001/317
END
done > expected
diff expected seen
