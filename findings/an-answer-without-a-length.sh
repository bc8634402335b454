#!/bin/sh
# A web server may tell no length, and close the connection after the last byte (RFC 9112, 6.3), or send a file in chunks. Of
# both, FFmpeg 9.0.2 delivers all packets of an MPEG-TS, and then reports an I/O error, so that it fails with -xerror.
# libav 62 (PyAV 18.1) raises it after the last packet as well, but not of chunks. With -multiple_requests 1, FFmpeg sees
# the end of chunks, too.
#
# A closed connection can't be told from a lost one. Penstock makes it an end with a warning (`_decoding/open_video.py`),
# and passes that option to a program that fetches (`_facts/fetching.py`).
#
# Seen for 50 packets: 50 each time; status 0 and no error with a length, status 251 without. PyAV: an end, and
# Input/output error for the connection that was closed.
set -eu
folder=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --target packages av==18.1.0 || exit 2
python3 -m pip install --quiet --no-deps --target packages imageio-ffmpeg==0.8.1 || exit 2
cat > serve.py <<END
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *words): pass
    def do_GET(self):
        data = open("video.ts", "rb").read()
        self.send_response(200)
        if self.path == "/length.ts":
            self.send_header("Content-Length", str(len(data)))
        if self.path == "/chunks.ts":
            self.send_header("Transfer-Encoding", "chunked")
            data = b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
END
cat > read.py <<END
import av, sys
count = 0
with av.open(sys.argv[1]) as file:
    try:
        for packet in file.demux():
            count += packet.size > 0
        print(count, "end")
    except av.error.FFmpegError as error:
        print(count, error.strerror)
END
export PYTHONPATH=packages
ffmpeg=$(python3 -c 'import imageio_ffmpeg as i; print(i.get_ffmpeg_exe())')
"$ffmpeg" -version | sed -n '1s/ Copyright.*//p'
"$ffmpeg" -v error -f lavfi -i testsrc -frames:v 50 -c:v mpeg2video video.ts
: > port
python3 serve.py > port & server=$!
while [ ! -s port ]; do sleep 0.1; done
read_by_program() {
    url=http://127.0.0.1:$(cat port)/$1.ts status=0
    shift
    "$ffmpeg" -v quiet -xerror "$@" -y -i "$url" -c copy -f framecrc list || status=$?
    echo "$(grep -vc '^#' list) packets, status $status"
}
for name in length chunks close; do
    seen=$(read_by_program $name)
    echo "$name: $seen; PyAV $(python3 read.py "http://127.0.0.1:$(cat port)/$name.ts")" | tee -a seen
done
echo "chunks, -multiple_requests 1: $(read_by_program chunks -multiple_requests 1)" | tee -a seen
cat > expected <<END
length: 50 packets, status 0; PyAV 50 end
chunks: 50 packets, status 251; PyAV 50 end
close: 50 packets, status 251; PyAV 50 Input/output error
chunks, -multiple_requests 1: 50 packets, status 0
END
diff expected seen
