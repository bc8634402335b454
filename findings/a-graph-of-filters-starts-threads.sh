#!/bin/sh
# The first filter of a graph starts a thread for each CPU, even if no filter of the graph uses threads, as filters of audio
# don't. With two CPUs, that takes 1.6 ms, and a graph without threads 0.01 ms. `Graph.threads` must be 1 before the first
# `Graph.add`.
#
# Penstock sets it for each graph (`_decoding/mixing.py`, `_decoding/pixels.py`, `_facts/probing.py`).
#
# Seen with PyAV 18.1.0 on two CPUs. With one CPU, no thread is started.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --target packages av==18.1.0 || exit 2
cat > run.py <<'END'
import os
import av

def threads():
    return len(os.listdir("/proc/self/task"))

for number in (0, 1):
    before = threads()
    graph = av.filter.Graph()
    graph.threads = number
    graph.add("abuffer", "sample_rate=48000:sample_fmt=s16:channel_layout=mono:time_base=1/48000")
    print(f"threads={number}: threads are started: {threads() > before}")
    del graph
END
PYTHONPATH=packages python3 run.py | tee seen
cat > expected <<END
threads=0: threads are started: True
threads=1: threads are started: False
END
diff expected seen
