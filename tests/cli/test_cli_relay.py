"""``penstock relay``: what it moves, how it ends, and what it says; also what ``penstock tee`` shares with it."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cases import IS_ROOT, PATIENCE_S, eventually
from support.command_line import (
    ENDING,
    HIDE_CURSOR,
    SHOW_CURSOR,
    Terminal,
    delivered,
    failed,
    finish,
    on_terminal,
    run,
    run_on_terminal,
    run_process,
    start,
)
from support.streams import unread_bytes
from support.this_process import are_asleep, threads


@pytest.fixture
def silent() -> Iterator[int]:
    """A pipe that gives nothing, and has no end."""
    reader, writer = os.pipe()
    yield reader
    os.close(reader)
    os.close(writer)


def seconds_of(who: str, said: str) -> float:
    """For how long `who` did nothing, by an error message."""
    found = re.search(rf"{who} nothing for ([\d.]+) s", said)
    assert found, said
    return float(found[1])


class TestRelay:
    """One source, one destination."""

    def test_smoke(self, big: Path, tmp_path: Path) -> None:
        (tmp_path / "out").write_bytes(bytes(4 << 20))
        assert delivered(run("relay", big, tmp_path / "out")) == b""
        assert (tmp_path / "out").read_bytes() == big.read_bytes()

    def test_relay_continues_a_standard_input_file_from_its_position(self, big: Path) -> None:
        with big.open("rb", buffering=0) as source:
            source.seek(1000)
            assert delivered(run("relay", "-", "-", stdin=source)) == big.read_bytes()[1000:]

    @pytest.mark.parametrize(
        ("count", "nbytes"),
        [
            ("0", 0),
            ("64KiB", 64 << 10),
            ("1m", 1 << 20),
            ("1 MB", 10**6),
        ],
    )
    def test_count_option_limits_the_bytes(self, big: Path, count: str, nbytes: int) -> None:
        assert delivered(run("relay", big, "-", "--count", count)) == big.read_bytes()[:nbytes]

    def test_offset_option_ignores_the_file_position(self, big: Path) -> None:
        with big.open("rb", buffering=0) as source:
            source.seek(1000)
            done = run("relay", "-", "-", "--offset", "1K", "--count", "70000", stdin=source)
            assert delivered(done) == big.read_bytes()[1024 : 1024 + 70000]

    def test_a_source_that_ends_before_the_count_is_no_failure(self, big: Path) -> None:
        done = run("relay", big, "-", "--count", "1G", "--no-progress")
        assert delivered(done) == big.read_bytes()

    @pytest.mark.linux("files in /dev")
    @pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
    def test_path_of_standard_output_writes_to_standard_output(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "log").write_bytes(b"older, ")
        with (tmp_path / "log").open("ab") as output:
            delivered(run_process("relay", "-", name, data=b"new", stdout=output))
        assert (tmp_path / "log").read_bytes() == b"older, new"

    def test_append_option_appends_to_the_file(self, tmp_path: Path) -> None:
        for data in (b"one", b"two"):
            delivered(run("relay", "-", tmp_path / "out", "--append", data=data))
        assert (tmp_path / "out").read_bytes() == b"onetwo"

    @pytest.mark.linux("modes of files")
    def test_a_new_file_has_the_permissions_that_the_user_gives_to_new_files(self, tmp_path: Path) -> None:
        delivered(run_process("relay", "-", tmp_path / "out", data=b"x", umask=0o027))
        assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640

    @pytest.mark.parametrize("arguments", [["./-x", "./fifo:y"], ["--", "-x", "./fifo:y"]])
    def test_odd_names_are_taken_literally(self, tmp_path: Path, arguments: list[str]) -> None:
        (tmp_path / "-x").write_bytes(b"data")
        delivered(run("relay", *arguments, cwd=tmp_path))
        assert (tmp_path / "fifo:y").read_bytes() == b"data"

    @pytest.mark.linux("files in /dev")
    def test_relay_reads_and_writes_devices(self, tmp_path: Path) -> None:
        delivered(run("relay", "/dev/zero", tmp_path / "out", "--count", "100000"))
        assert (tmp_path / "out").read_bytes() == bytes(100000)
        delivered(run("relay", tmp_path / "out", "/dev/null"))

    @pytest.mark.linux("/proc")
    def test_relay_reads_a_file_that_states_no_size(self) -> None:
        done = run("relay", "/proc/version", "-", "--progress")
        assert done.stdout == Path("/proc/version").read_bytes() and "/? bytes" in done.stderr.decode()

    @pytest.mark.linux("sockets as descriptors")
    def test_relay_reads_and_writes_sockets(self) -> None:
        near, far = socket.socketpair()
        with near, far:
            far.sendall(b"question")
            far.shutdown(socket.SHUT_WR)
            # Both ends are one socket, as under inetd.
            assert delivered(run("relay", "-", "-", stdin=near, stdout=near)) is None
            assert far.recv(100) == b"question"

    @pytest.mark.parametrize("prefix", ["", "fifo:"])
    def test_relay_reads_and_writes_fifos(self, fifo: Path, big: Path, prefix: str) -> None:
        with start("relay", big, f"{prefix}{fifo}") as sender:
            assert delivered(run("relay", f"{prefix}{fifo}", "-")) == big.read_bytes()
            assert finish(sender) == (0, "")

    def test_a_fifo_destination_waits_for_its_reader(self, fifo: Path) -> None:
        with start("relay", "-", f"fifo:{fifo}", stdin=subprocess.PIPE) as sender:
            assert sender.stdin is not None
            sender.stdin.write(b"early")
            sender.stdin.close()
            sender.stdin = None
            with pytest.raises(subprocess.TimeoutExpired):
                sender.wait(0.3)
            assert fifo.read_bytes() == b"early"
            assert finish(sender) == (0, "")

    @pytest.mark.linux("FIFOs")
    def test_missing_fifo_is_an_error_that_names_mkfifo(self, tmp_path: Path) -> None:
        said = failed(run("relay", f"fifo:{tmp_path}/it's", "-"))
        assert "mkfifo" in said
        assert not any(tmp_path.iterdir())

    @pytest.mark.linux("FIFOs")
    def test_path_that_is_no_fifo_is_refused_unharmed(self, big: Path, tmp_path: Path) -> None:
        said = failed(run("relay", "-", f"fifo:{big}", data=b"x"))
        assert str(big) in said
        assert "FIFO" in said
        assert big.stat().st_size == 3 << 20

    @pytest.mark.parametrize("source", ["missing", "."])
    def test_a_source_that_cannot_be_read_harms_no_destination(self, tmp_path: Path, source: str) -> None:
        (tmp_path / "out").write_bytes(b"kept")
        assert f"{source}: " in failed(run("relay", source, "out", cwd=tmp_path))
        assert (tmp_path / "out").read_bytes() == b"kept"

    def test_offset_for_a_pipe_is_wrong_usage_and_harms_no_destination(self, tmp_path: Path) -> None:
        (tmp_path / "out").write_bytes(b"kept")
        said = failed(run("relay", "-", tmp_path / "out", "--offset", "1", data=b"x"), status=2)
        assert "standard input" in said
        assert (tmp_path / "out").read_bytes() == b"kept"

    @pytest.mark.parametrize(
        ("other", "options"), [("./big", []), ("hard", []), ("soft", []), ("big", ["--append"])]
    )
    def test_a_file_to_itself_is_refused_unharmed(self, big: Path, other: str, options: list[str]) -> None:
        (big.parent / "hard").hardlink_to(big)
        if other == "soft":
            (big.parent / "soft").symlink_to("big")
        before = big.read_bytes()
        said = failed(run("relay", "big", other, *options, cwd=big.parent))
        assert "are the same" in said
        assert big.read_bytes() == before

    def test_file_that_is_also_a_standard_stream_is_refused_unharmed(self, big: Path) -> None:
        before = big.read_bytes()
        with big.open("ab") as output:
            assert "are the same" in failed(run("relay", big, "-", stdout=output))
        with big.open("rb") as source:
            assert "are the same" in failed(run("relay", "-", big, stdin=source))
        assert big.read_bytes() == before

    def test_a_fifo_to_itself_is_refused_and_not_waited_for(self, fifo: Path) -> None:
        assert "are the same" in failed(run("relay", f"fifo:{fifo}", fifo))

    @pytest.mark.linux("descriptors that programs inherit")
    @pytest.mark.parametrize(
        ("arguments", "number", "name"),
        [(["-", "out"], 0, "standard input"), (["big", "-"], 1, "standard output")],
    )
    def test_closed_standard_stream_is_an_error(
        self, big: Path, arguments: list[str], number: int, name: str
    ) -> None:
        done = run_process("relay", *arguments, cwd=big.parent, preexec_fn=lambda: os.close(number))
        assert f"{name}: {os.strerror(errno.EBADF)}" in failed(done)

    @pytest.mark.linux("descriptors that programs inherit")
    def test_relay_works_with_standard_error_closed(self, big: Path) -> None:
        done = run_process("relay", big, "-", "--progress", preexec_fn=lambda: os.close(2))
        assert (done.returncode, done.stdout) == (0, big.read_bytes())

    @pytest.mark.linux("files in /dev")
    def test_full_disk_is_reported_with_the_bytes_delivered(self, big: Path) -> None:
        said = failed(run("relay", big, "/dev/full"))
        assert f"/dev/full: {os.strerror(errno.ENOSPC)}; 0 bytes were delivered" in said

    @pytest.mark.linux("limits of a process")
    def test_file_size_limit_is_reported_with_the_bytes_delivered(self, big: Path, tmp_path: Path) -> None:
        import resource

        def limit() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

        said = failed(run_process("relay", big, tmp_path / "out", preexec_fn=limit))
        assert f"{os.strerror(errno.EFBIG)}; 100000 bytes were delivered" in said
        assert (tmp_path / "out").read_bytes() == big.read_bytes()[:100_000]

    @pytest.mark.linux("what a pipe holds that was not read")
    def test_reader_that_goes_away_is_reported_with_the_bytes_delivered(self, big: Path) -> None:
        with start("relay", big, "-") as process:
            assert process.stdout is not None
            os.read(process.stdout.fileno(), 10)
            process.stdout.close()
            process.stdout = None
            status, said = finish(process)
        assert status == 1
        assert said.splitlines() == ["Error: standard output: the reader went away; 10 bytes were delivered"]

    def test_timeout_ends_a_silent_source(self, silent: int) -> None:
        said = failed(run("relay", "-", "-", "--timeout", "0.1", stdin=silent))
        assert seconds_of("standard input sent", said) >= 0.1  # a busy machine is late

    @pytest.mark.linux("what a pipe holds that was not read")
    def test_timeout_ends_a_stalled_destination(self, big: Path, pair: tuple[int, int]) -> None:
        said = failed(run("relay", big, "-", "--timeout", "0.1", stdout=pair[1]))
        assert seconds_of("standard output took", said) >= 0.1  # a busy machine is late
        assert f"; {unread_bytes(pair[0])} bytes were delivered" in said

    @pytest.mark.linux("the size of a pipe")
    @pytest.mark.parametrize("end", ["timeout", "signal"])
    def test_bytes_in_hand_at_the_end_are_reported_as_lost(self, end: str, pair: tuple[int, int]) -> None:
        import fcntl

        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with near, far:
            far.send(bytes(150_000))  # a message, which is taken whole
            fcntl.fcntl(pair[1], fcntl.F_SETPIPE_SZ, 1 << 20)
            before = os.write(pair[1], bytes((1 << 20) - 100_000))
            limit = ["--timeout", "0.1"] if end == "timeout" else []
            with start("relay", "-", "-", *limit, stdin=near, stdout=pair[1]) as process:
                if end == "signal":
                    assert eventually(lambda: unread_bytes(pair[0]) > before)
                    process.terminate()
                _, said = finish(process)
        counts = re.search(r"; (\d+) bytes were delivered, (\d+) were read and lost", said)
        assert counts is not None, said
        assert sum(map(int, counts.groups())) == 150_000

    @pytest.mark.parametrize(("number", "said"), ENDING)
    def test_signal_ends_relay_as_a_shell_expects_and_the_bytes_delivered_are_reported(
        self, number: int, said: str
    ) -> None:
        reader, writer = os.pipe()
        os.write(writer, b"begun")
        with start("relay", "-", "-", stdin=reader) as process:
            assert process.stdout is not None
            assert process.stdout.read(5) == b"begun"
            process.send_signal(number)
            assert finish(process) == (-number, f"Error: {said}; 5 bytes were delivered\n")
        os.close(reader)
        os.close(writer)

    @pytest.mark.parametrize(("number", "said"), ENDING)
    def test_signal_ends_the_wait_for_a_fifo(self, fifo: Path, number: int, said: str) -> None:
        with start("relay", "/dev/zero", f"fifo:{fifo}", stdout=subprocess.DEVNULL) as process:
            assert eventually(lambda: _has_open(process, "/dev/zero"))
            process.send_signal(number)
            assert finish(process) == (-number, f"Error: {said}; 0 bytes were delivered\n")
        assert [*fifo.parent.iterdir()] == [fifo]

    @pytest.mark.linux("signals to programs")
    def test_ignored_signal_stays_ignored(self) -> None:
        reader, writer = os.pipe()
        os.write(writer, b"begun")
        ignore = functools.partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
        with start("relay", "-", "-", stdin=reader, preexec_fn=ignore) as process:
            os.close(reader)
            assert process.stdout is not None
            assert process.stdout.read(5) == b"begun"
            process.send_signal(signal.SIGHUP)
            os.write(writer, b"more")
            os.close(writer)
            assert process.stdout.read() == b"more"
            assert finish(process) == (0, "")

    @pytest.mark.parametrize("arguments", [["relay", "/dev/zero", "-"], ["tee", "/dev/zero", "-"]])
    def test_ctrl_c_ends_a_write_to_a_terminal_that_nobody_reads(self, arguments: list[str]) -> None:
        controlling, terminal = os.openpty()
        with start(*arguments, stdout=terminal) as process:
            # Until the command waits for room. Linux does not always report a full terminal as such: it moves bytes to
            # the reader's side later, and wakes no writer then.
            assert eventually(lambda: unread_bytes(controlling) and are_asleep(lambda: threads(process.pid)))
            process.send_signal(signal.SIGINT)
            status, said = finish(process)
        os.close(terminal)
        os.close(controlling)
        assert status == -signal.SIGINT
        # The count is final: the kernel holds no write.
        assert re.fullmatch(
            r"Error: interrupted; (\d+ bytes were delivered|bytes delivered: \d+ to -)(, \d+ were read and lost)?\n",
            said,
        )

    def test_waiting_for_a_fifo_has_the_timeout_and_harms_no_destination(self, fifo: Path) -> None:
        out = fifo.parent / "out"
        out.write_bytes(b"kept")
        said = failed(run("relay", fifo, out, "--timeout", "0.1"))
        assert f"{fifo}: nobody has opened the other side for 0.1 s" in said
        said = failed(run("relay", out, fifo, "--timeout", "0.1"))
        assert f"{fifo}: nobody has opened the other side for 0.1 s" in said
        assert out.read_bytes() == b"kept"

    def test_waiting_for_a_fifo_creates_no_file(self, fifo: Path) -> None:
        failed(run("relay", fifo, "new", "--timeout", "0.1", cwd=fifo.parent))
        assert [*fifo.parent.iterdir()] == [fifo]

    def test_missing_folder_is_reported_before_a_fifo_is_waited_for(self, fifo: Path) -> None:
        said = failed(run("relay", fifo, fifo.parent / "missing" / "new", "--timeout", "5"))
        assert os.strerror(errno.ENOENT) in said

    @pytest.mark.parametrize(
        "arguments", [["x" * 5000, "out"], ["big", "x" * 5000], ["", "out"], ["big", ""]]
    )
    def test_name_that_no_file_can_have_is_refused(self, big: Path, arguments: list[str]) -> None:
        assert "Error: " in failed(run("relay", *arguments, cwd=big.parent))
        assert [*big.parent.iterdir()] == [big]

    def test_a_name_cannot_write_to_the_terminal(self, tmp_path: Path) -> None:
        assert "Error: 'a\\n\\x1b[31m': " in failed(run("relay", "a\n\x1b[31m", tmp_path / "out"))

    @pytest.mark.linux("modes of files")
    @pytest.mark.skipif(not IS_ROOT, reason="only root can become somebody else")
    @pytest.mark.parametrize("arguments", [["closed/a", "-"], ["-", "closed/a"], ["closed", "-"]])
    def test_missing_permission_is_reported(self, tmp_path: Path, arguments: list[str]) -> None:
        (tmp_path / "closed").mkdir(0o700)
        # That user may not read our modules.
        program = "import os, sys\nimport penstock.cli.commands.relay\nos.chdir(sys.argv.pop(1))\nos.setuid(65534)\n"
        command = [sys.executable, "-c", f"{program}penstock.cli.main()", tmp_path, "relay", *arguments]
        done = subprocess.run(command, input=b"", capture_output=True, timeout=PATIENCE_S)
        assert os.strerror(errno.EACCES) in failed(done)


def _has_open(process: subprocess.Popen[bytes], path: str) -> bool:
    """Whether it has come as far as to open that."""
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if int(entry.name) > 2 and str(entry.readlink()) == path:
                return True
    return False


class TestProgress:
    """What is shown on standard error."""

    def test_progress_is_shown_on_a_terminal(self, big: Path, tmp_path: Path) -> None:
        status, shown, _ = run_on_terminal("relay", big, tmp_path / "out")
        assert status == 0
        assert "3.1/3.1 MB" in shown
        summary = shown.splitlines()[-1]
        assert f"{3 << 20} bytes in " in summary
        assert " by " in summary

    def test_progress_is_drawn_while_the_relay_runs(self) -> None:
        reader, writer = os.pipe()
        with on_terminal("relay", "-", "-", "--count", "10", stdin=reader) as (process, terminal):
            os.write(writer, b"12345")
            terminal.until(b"5/10 bytes")
            assert process.poll() is None
            os.write(writer, b"67890")
            assert b"10/10 bytes" in terminal.rest()
        os.close(reader)
        os.close(writer)

    @pytest.mark.parametrize(("number", "said"), ENDING)
    def test_a_signal_leaves_the_terminal_as_it_was(self, number: int, said: str) -> None:
        with on_terminal("relay", "/dev/zero", "/dev/null") as (process, terminal):
            terminal.until(b"GB/s", b"MB/s")
            process.send_signal(number)
            shown = terminal.rest()
        assert process.returncode == -number
        assert HIDE_CURSOR not in shown.split(SHOW_CURSOR)[-1]
        assert f"Error: {said}; ".encode() in shown.split(SHOW_CURSOR)[-1]

    def test_a_long_name_leaves_room_for_the_numbers(self, big: Path, tmp_path: Path) -> None:
        out = tmp_path / ("long-" * 30 + "end")
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
        status, shown, _ = run_on_terminal("relay", big, out, env=environment)
        assert status == 0
        assert "end " in shown
        assert "3.1/3.1 MB" in shown
        assert str(out) not in shown

    def test_progress_can_be_turned_off(self, big: Path, tmp_path: Path) -> None:
        assert run_on_terminal("relay", big, tmp_path / "out", "--no-progress") == (0, "", b"")

    def test_progress_is_not_mixed_into_data_on_the_terminal(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("text")
        controlling, user = os.openpty()
        terminal = Terminal(controlling)
        with terminal.file, start("relay", tmp_path / "text", "-", stdout=user, stderr=user) as process:
            os.close(user)
            assert terminal.rest() == b"text"
        assert process.returncode == 0

    def test_progress_option_shows_progress_off_a_terminal(self, big: Path) -> None:
        done = run("relay", big, "-", "--progress")
        assert (done.returncode, done.stdout) == (0, big.read_bytes())
        row, summary = done.stderr.decode().splitlines()
        assert row.startswith("standard output ")
        assert "3.1/3.1 MB" in row
        assert summary.startswith(f"{3 << 20} bytes in ")

    def test_a_source_that_ended_before_the_count_is_mentioned(self) -> None:
        done = run("relay", "-", "-", "--count", "10", "--progress", data=b"1234")
        assert (done.returncode, done.stdout) == (0, b"1234")
        assert done.stderr.decode().rstrip().endswith("; the source ended 6 bytes before the count")

    def test_progress_total_is_the_rest_after_the_offset_up_to_the_count(self, big: Path) -> None:
        done = run("relay", big, "-", "--progress", "--offset", 3 << 20, "--count", "5")
        assert "0/0 bytes" in done.stderr.decode()
        done = run("relay", big, "-", "--progress", "--offset", (3 << 20) - 9, "--count", "1K")
        assert "9/9 bytes" in done.stderr.decode()

    def test_progress_total_of_a_pipe_is_unknown(self) -> None:
        assert "4/? bytes" in run("relay", "-", "-", "--progress", data=b"1234").stderr.decode()

    @pytest.mark.linux("Tee")
    def test_every_destination_of_a_tee_has_its_row(self, big: Path, tmp_path: Path) -> None:
        names = [str(tmp_path / "[b]old"), "/dev/full"]
        done = run("tee", big, *names, "--progress", env=os.environ | {"COLUMNS": "300"})
        assert done.returncode == 1
        first, second, summary, fault = done.stderr.decode().splitlines()
        assert first.split()[0] == names[0]
        assert first.split()[-1] == "source-ended"
        assert second.split()[0] == names[1]
        assert second.split()[-1] == "failed"
        assert summary.startswith(f"{3 << 20} bytes in ")
        assert fault.startswith("Error: /dev/full: ")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["relay", "-"], "Missing argument 'DST'"),
        pytest.param(["tee", "-"], "Missing argument 'OUTPUT...'", marks=pytest.mark.linux("Tee")),
        (["relay", "-", "-", "--count", "much"], "not 'much'"),
        (["relay", "-", "-", "--count", "-1"], "not '-1'"),
        (["relay", "-", "-", "--count", "8388608T"], "'8388608T' is more"),
        (["relay", "-", "-", "--offset", "4X"], "not '4X'"),
        (["relay", "-", "-", "--timeout", "0"], "above 0, not '0'"),
        pytest.param(
            ["tee", "-", "-", "--evict-after", "soon"], "above 0, not 'soon'", marks=pytest.mark.linux("Tee")
        ),
    ],
)
def test_wrong_usage_is_reported_and_exits_with_2(arguments: list[str], complaint: str) -> None:
    assert complaint in failed(run(*arguments), status=2)
