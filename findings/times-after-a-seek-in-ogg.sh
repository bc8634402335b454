#!/bin/sh
# After a seek in FLAC in an Ogg file, libav gives some frames times that belong to other frames: the samples at a time
# aren't those that decoding from the beginning has at that time. There is no error or warning.
#
# Penstock lists the packets of an Ogg file first, and takes a place after a seek only if a packet of that place is the
# listed one (`_decoding/open_sound.py`).
#
# Seen with PyAV 18.1.0: some of the seeks to 20 places are wrong.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --target packages av==18.1.0 numpy==2.4.6 || exit 2
cat > run.py <<'END'
import av, numpy as np

with av.open("sweep.ogg", "w") as output:
    stream = output.add_stream("flac", rate=48000, layout="mono")
    times = np.arange(4 * 48000) / 48000
    samples = (30000 * np.sin(400 * times**2)).astype(np.int16)
    for begin in range(0, len(samples), 4608):
        frame = av.AudioFrame.from_ndarray(samples[None, begin : begin + 4608], "s16", "mono")
        frame.sample_rate, frame.pts = 48000, begin
        output.mux(stream.encode(frame))
    output.mux(stream.encode(None))


def frames(place):
    with av.open("sweep.ogg") as file:
        stream = file.streams.audio[0]
        file.seek(place, stream=stream)
        return [(frame.pts, frame.to_ndarray()[0]) for frame in file.decode(stream)]


wrong = 0
for place in range(0, 192000, 9600):
    for pts, got in frames(place):
        if not np.array_equal(got, samples[pts : pts + len(got)]):
            print(f"after a seek to {place}, the frame with pts {pts} has other samples")
            wrong += 1
            break
print("some seeks are wrong" if wrong else "all seeks are right")
END
PYTHONPATH=packages python3 run.py | tee seen
grep -q "some seeks are wrong" seen
