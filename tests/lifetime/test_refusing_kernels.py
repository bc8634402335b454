"""Kernels and sandboxes that refuse system calls: all works by slower ways, and says which and why.

gVisor has no vmsplice(2), kernels before 5.3 copy no ranges between file systems, and container profiles may refuse
any of these.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from support.processes import run_script, succeeded

from benchmarks.harness.machine import ROOT
from benchmarks.harness.seccomp import NUMBERS

pytestmark = [
    pytest.mark.linux("kernels that refuse system calls"),
    pytest.mark.skipif(not NUMBERS, reason="the numbers of this machine's system calls are not known"),
]

ALL = (
    *("vmsplice", "splice", "tee", "copy_file_range", "sendfile", "preadv2", "pwritev2", "F_SETPIPE_SZ"),
    *("sched_setaffinity", "sched_setscheduler", "setpriority"),
)
# Of what each part says: the word for the fallback, and for its reason.
PROGRAM = f"""
import errno, socket, subprocess, tempfile
sys.path.insert(0, {str(ROOT)!r})
from benchmarks.harness import seccomp
number, calls = int(sys.argv[1]), sys.argv[2].split(",")
seccomp.refuse(number, *calls)
why = os.strerror(number)
data = bytes(range(256)) * 8000
file, copy = tempfile.TemporaryFile(), tempfile.TemporaryFile()
file.write(data)
file.flush()


def drained(fill):
    reader, writer = os.pipe()
    got = []
    def drain():
        with open(reader, "rb") as file:
            got.append(file.read())
    thread = threading.Thread(target=drain, daemon=True)
    thread.start()
    result = fill(writer)
    os.close(writer)
    thread.join()
    assert got[0] == data, len(got[0])
    return result
"""
# Each with the calls of which one is refused.
PARTS = {
    "writer": """
def write(fd):
    with penstock.Writer(fd, mode="zero-copy") as writer:
        writer.submit(data)
        writer.flush()
        return writer.stats
stats = drained(write)
assert sum(stats.bytes_by_transport.values()) == len(data)
if {"vmsplice", "F_SETPIPE_SZ"} & {*calls}:
    assert stats.transport == "write" or "vmsplice" not in calls, stats
    assert stats.capacity_bytes == 65536 or "F_SETPIPE_SZ" not in calls, stats
    assert stats.reason
""",
    "relay": """
relayed = drained(lambda fd: penstock.relay(file, fd, offset=0))
assert (relayed.method == "read-write") == ("splice" in calls), relayed
assert ("splice" not in calls) or why in relayed.reason, relayed
relayed = penstock.relay(file, copy, offset=0)
assert os.pread(copy.fileno(), len(data) + 1, 0) == data
if "copy_file_range" in calls:
    assert relayed.method == ("read-write" if "sendfile" in calls else "sendfile"), relayed
    assert why in relayed.reason, relayed
""",
    "tee": """
def through_cat(fd):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        feeder = threading.Thread(target=lambda: (cat.stdin.write(data), cat.stdin.close()))
        feeder.start()
        with penstock.Tee(cat.stdout, fd, copy) as tee:
            report = tee.wait()
        feeder.join()
    return report.outputs
os.ftruncate(copy.fileno(), 0)
copy.seek(0)
pipe, regular = drained(through_cat)
assert os.pread(copy.fileno(), len(data) + 1, 0) == data
if {"tee", "splice"} & {*calls}:
    assert pipe.method == "read-write", pipe
    assert why in pipe.reason and why in regular.reason, (pipe, regular)
else:
    assert pipe.method == "tee", pipe
""",
    "reader": """
def read(fd):
    os.write(fd, data[:1000])
    os.close(fd)
reader, writer = os.pipe()
threading.Thread(target=read, args=[writer]).start()
with penstock.Reader(reader, frame_bytes=100) as frames:
    assert b"".join(map(bytes, frames)) == data[:1000]
""",
    "video": """
with penstock.Encoder("video.mkv", size=(64, 48), fps=30, codec="ffv1") as encoder:
    for shade in range(20):
        encoder.write(bytes([shade]) * (64 * 48 * 3))
assert encoder.report.frames_encoded == 20
with penstock.Decoder("video.mkv") as decoder:
    assert [round(float(frame.mean())) for frame in decoder] == [*range(20)]
""",
    "info": """
from penstock.cli.machine import methods
found = methods()
for name, method, needed in (
    ("zero-copy", "zero-copy", {"vmsplice"}),
    ("relay", "splice", {"splice"}),
    ("copy", "copy_file_range", {"copy_file_range"}),
    ("tee", "tee", {"tee"}),
):
    # Where splice(2) alone is refused, the first destination of a tee has taken its bytes before.
    if name != "tee" or calls != ["splice"]:
        assert (found[name]["method"] != method) == bool(needed & {*calls}), found[name]
    assert found[name]["reason"]
""",
    "cpu": """
with penstock.cpu.applied(priority="below-normal", cpus=[min(os.sched_getaffinity(0))]) as applied:
    notes = str(applied.notes)
if {"setpriority", "sched_setaffinity"} <= {*calls}:
    assert notes.count(why) == 2, notes
""",
}


@pytest.mark.parametrize("refused", [errno.EPERM, errno.ENOSYS])
def test_package_works_if_the_kernel_refuses_every_optional_call(tmp_path: Path, refused: int) -> None:
    succeeded(run_script(PROGRAM + "".join(PARTS.values()), refused, ",".join(ALL), cwd=tmp_path))


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("call", ALL)
def test_package_works_if_the_kernel_refuses_one_call(tmp_path: Path, part: str, call: str) -> None:
    succeeded(run_script(PROGRAM + PARTS[part], errno.ENOSYS, call, cwd=tmp_path))
