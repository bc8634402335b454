#!/bin/sh
# An AVIF picture that its container turns (irot), with EXIF data beside that. In PyAV 18.1, the frame's side data can't be
# listed: ValueError, because libav's type of EXIF data has no name there. So nobody sees the display matrix, and
# whether the picture is mirrored. `rotation` still tells the angle. Without EXIF data, the matrix is there.
#
# Penstock asks for the angle in that case (`_facts/probing.py`).
#
# Seen: the matrix without EXIF data, ValueError with it, and -90 degrees both times.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --target packages av==18.1.0 pillow==12.0.0 || exit 2
cat > show.py <<END
import av, PIL
from PIL import Image
for name, text in (("plain.avif", None), ("described.avif", "a description")):
    exif = Image.Exif()
    exif[0x0112] = 6  # the orientation, which Pillow writes as irot
    if text:
        exif[0x010E] = text
    Image.new("RGB", (64, 32), (200, 30, 60)).save(name, exif=exif)
    with av.open(name) as file:
        frame = next(file.decode(video=0))
        try:
            seen = sorted(one.type.name for one in frame.side_data)
        except ValueError as error:
            seen = f"ValueError: {error}"
        print(name, seen, frame.rotation)
END
PYTHONPATH=packages python3 show.py | tee seen
cat > expected <<END
plain.avif ['DISPLAYMATRIX'] -90
described.avif ValueError: 31 is not a valid Type -90
END
diff expected seen
