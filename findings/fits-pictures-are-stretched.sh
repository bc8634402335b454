#!/bin/sh
# FFmpeg stretches each FITS picture so that its own smallest value becomes 0 and its largest 65535. Values are lost, and
# two pictures of one series can't be compared: 300 in one and 30 in the other are the same gray.
#
# Penstock's page on formats says so.
#
# Seen with FFmpeg 4.2.2, 7.0.2 and 9.0.2: 0 100 200 300 and 0 1 2 30 become 0 21845 43690 65535 and 0 2184 4369 65535.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > fits.py <<END
import struct, sys
cards = ["SIMPLE  =                    T", "BITPIX  =                   16", "NAXIS   =                    2"]
cards += ["NAXIS1  =                    4", "NAXIS2  =                    1", "END"]
head = "".join(card.ljust(80) for card in cards).ljust(2880).encode()
sys.stdout.buffer.write(head + struct.pack(">4h", *map(int, sys.argv[1:])).ljust(2880, bytes(1)))
END
python3 fits.py 0 100 200 300 > bright.fits
python3 fits.py 0 1 2 30 > dark.fits
for version in 0.5.1 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    for picture in bright dark; do
        "$ffmpeg" -v error -y -i $picture.fits -pix_fmt gray16le -f rawvideo samples
        echo "$picture:" $(od -An -tu2 samples)
    done | tee -a seen
done
for version in 0.5.1 0.6.0 0.8.1; do
    echo "bright: 0 21845 43690 65535"
    echo "dark: 0 2184 4369 65535"
done > expected
diff expected seen
