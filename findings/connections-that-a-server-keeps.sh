#!/bin/sh
# libav 62 (PyAV 18.1) asks a web server to close the connection after each answer. If the answer doesn't say that it
# will, libav sends its next request on that connection, and the packets at the beginning of an MP4 with its index at the
# end are lost without an error. With the option multiple_requests=1 all come. The FFmpeg programs 7.0.2 and 9.0.2
# lose none.
#
# Penstock sets that option for http and https (`_facts/opening.py`).
#
# Seen for 60 packets: fewer than 60, the first of them not at byte 44, without an exception; 60 with the option; 60 by the
# programs.
set -eu
folder=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --target av18 av==18.1.0 || exit 2
cat > serve.py <<END
import http.server, re, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *words): pass
    def do_GET(self):
        data = open("video.mp4", "rb").read()
        first = int(re.match(r"bytes=(\d+)-", self.headers.get("Range", "bytes=0-"))[1])
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        try:
            self.wfile.write(data[first:])
        except OSError:
            pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
END
cat > count.py <<END
import sys, av
with av.open(sys.argv[1], options=dict(one.split("=") for one in sys.argv[2:])) as file:
    packets = [packet for packet in file.demux() if packet.size]
whole = "all of them" if len(packets) == 60 else "fewer" if len(packets) < 60 else "more"
print(f"PyAV {av.__version__} {' '.join(sys.argv[2:])}:", whole, "from the first on" if packets[0].pos < 100 else "from a later one on")
END
: > port
python3 serve.py > port 2> log & server=$!
while [ ! -s port ]; do sleep 0.1; done
url=http://127.0.0.1:$(cat port)/video.mp4
for version in 0.6.0 0.8.1; do
    python3 -m pip install --quiet --no-deps --target "$version" "imageio-ffmpeg==$version" || exit 2
    ffmpeg=$(PYTHONPATH=$version python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
    "$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
    [ -e video.mp4 ] || "$ffmpeg" -v error -f lavfi -i "nullsrc=s=320x240:r=25,geq=random(1)*255:128:128" -frames:v 60 \
        -c:v mpeg2video -q:v 1 video.mp4
    "$ffmpeg" -v error -y -i "$url" -map 0:v -c copy -f framecrc list
    echo "$version: $(grep -vc '^#' list) packets" | tee -a seen
done
for option in "" multiple_requests=1; do
    # shellcheck disable=SC2086
    PYTHONPATH=av18 python3 count.py "$url" $option | tee -a seen
done
cat > expected <<END
0.6.0: 60 packets
0.8.1: 60 packets
PyAV 18.1.0 : fewer from a later one on
PyAV 18.1.0 multiple_requests=1: all of them from the first on
END
diff expected seen
