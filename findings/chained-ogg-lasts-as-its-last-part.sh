#!/bin/sh
# Ogg files may be joined by `cat` (RFC 3533, 4). FFmpeg reads the parts one after another as one stream, but says that the
# file lasts as long as its last part. FFmpeg 4.2.2 and 7.0.2 begin the second part's times at 0 again, and FFmpeg 9.0.2
# lets them go on, so that packets come later than the file's end.
#
# Penstock takes a file whose times go back, or which has more packets than it lasts, for joined, and doesn't seek in it
# (`_times_restart` in `_facts/seeking.py`, `_has_jumps` in `_decoding/open_sound.py`).
#
# Seen for FLAC of 0.4 s and 0.2 s: 28,800 samples, or 0.6 s, in a file of 0.20 s.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for version in 0.5.1 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    for seconds in 0.4 0.2; do
        "$ffmpeg" -v error -y -f lavfi -i sine=r=48000:d=$seconds -c:a flac $seconds.ogg
    done
    cat 0.4.ogg 0.2.ogg > joined.ogg
    lasts=$("$ffmpeg" -hide_banner -i joined.ogg 2>&1 | sed -n 's/ *Duration: \([0-9:.]*\).*/\1/p' || true)
    "$ffmpeg" -v quiet -i joined.ogg -f s16le -y samples
    last=$("$ffmpeg" -v error -i joined.ogg -c copy -copyts -f framecrc - | tail -n 1 | cut -d , -f 3 | tr -d ' ')
    later=no
    [ "$last" -lt 25000 ] || later=yes
    echo "$version: lasts $lasts, $(($(wc -c < samples) / 2)) samples, times go on: $later" | tee -a seen
done
cat > expected <<END
0.5.1: lasts 00:00:00.20, 28800 samples, times go on: no
0.6.0: lasts 00:00:00.20, 28800 samples, times go on: no
0.8.1: lasts 00:00:00.20, 28800 samples, times go on: yes
END
diff expected seen
