#!/bin/sh
# libav's AC-3 decoder fills bands without bits with noise. With the option cons_noisegen, the noise of a packet depends on
# that packet alone, so that the samples after a seek are those of decoding from the beginning. But a flush, which a seek
# needs, resets the option: after it, the samples differ again. If the first packet is decoded after the flush, they're the
# same.
#
# Penstock opens the file again for each seek in AC-3 and E-AC-3 (`_decoding/open_sound.py`).
#
# Seen with PyAV 18.1.0.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --target packages av==18.1.0 numpy==2.4.6 || exit 2
cat > run.py <<'END'
import av, numpy as np

random = np.random.default_rng(0)
with av.open("noise.mkv", "w") as output:
    stream = output.add_stream("ac3", rate=48000, layout="mono")
    for begin in range(0, 30 * 48000, 1536):
        samples = (0.3 * random.random((1, 1536))).astype(np.float32)
        frame = av.AudioFrame.from_ndarray(samples, "fltp", "mono")
        frame.sample_rate, frame.pts = 48000, begin
        output.mux(stream.encode(frame))
    output.mux(stream.encode(None))


def decoded(seconds, first_packets):
    """Samples by time from a place on; so many packets are decoded before the seek."""
    with av.open("noise.mkv") as file:
        stream = file.streams.audio[0]
        stream.codec_context.options = {"cons_noisegen": "1"}
        for _, packet in zip(range(first_packets), file.demux(stream)):
            packet.decode()
        if seconds:
            file.seek(1000 * seconds, stream=stream)
            stream.codec_context.flush_buffers()
        return {frame.pts: frame.to_ndarray() for frame in file.decode(stream)}


whole = decoded(0, 0)
for count in (0, 3):
    part = decoded(10, count)
    same = all(np.array_equal(whole[pts], part[pts]) for pts in sorted(part)[2:])
    print(f"{count} packets decoded before the seek:", "the same samples" if same else "other samples")
END
PYTHONPATH=packages python3 run.py | tee seen
cat > expected <<END
0 packets decoded before the seek: the same samples
3 packets decoded before the seek: other samples
END
diff expected seen
