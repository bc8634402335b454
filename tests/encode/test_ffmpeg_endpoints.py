"""What an input or output is taken for, and the outputs that are refused before FFmpeg starts."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import run_script, succeeded

from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.endpoints import Output
from penstock._formats import containers


@pytest.mark.parametrize(
    "url",
    [
        "RTMPS://host/live/key",
        "udp://127.0.0.1:1234?pkt_size=1316",
        "zmq:tcp://127.0.0.1:5555",
        "file:///v.mp4",
    ],
)
def test_urls_are_passed_on(url: str) -> None:
    assert endpoints.target(url) == url


@pytest.mark.parametrize("ending", containers._USUAL)
def test_usual_containers_match_libav(ending: str) -> None:
    assert containers.of_ending(ending) == containers._asked(f"name{ending}", None)


with_a_colon = pytest.mark.linux("names with colons and line ends")


@pytest.mark.parametrize(
    "name", ["-", pytest.param("pipe:", marks=with_a_colon), pytest.param("pipe:1", marks=with_a_colon)]
)
def test_standard_output_names_are_recognized_and_paths_are_not(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert endpoints.uses_stdout(endpoints.target(name))
    monkeypatch.chdir(tmp_path)
    target = endpoints.target(Path(name))
    assert target == f"file:{tmp_path / name}"
    assert not endpoints.uses_stdout(target)


@pytest.mark.parametrize(
    "name",
    [
        *("-y", "--", "%d.mp4", "x//y.mp4"),
        *(
            pytest.param(name, marks=with_a_colon)
            for name in ("concat:a.mp4", "http:x.mp4", "fd:1", "tee:a.mp4", "pipe:x", "a:b")
        ),
    ],
)
@pytest.mark.parametrize("kind", [str, Path])
def test_other_names_are_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: type
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    target = endpoints.target(kind(name))
    assert target == f"file:{tmp_path / name}"
    assert endpoints.is_path(target)
    assert endpoints.without_protocol(target) == str(tmp_path / name)


@pytest.mark.parametrize("name", ["pipe:0", "pipe:2", "pipe:17"])
def test_other_pipe_numbers_are_refused(name: str) -> None:
    with pytest.raises(ValueError):
        endpoints.target(name)


def test_a_list_of_outputs_is_for_tee() -> None:
    outputs = "[f=mpegts]udp://127.0.0.1:1|[f=matroska]video.mkv"
    assert endpoints.target(outputs, "tee") == outputs


def test_stream_urls_get_their_container() -> None:
    for container, targets in {
        "flv": ("rtmp://host/live", "rtmps://host/live"),
        "mpegts": ("udp://host:1", "SRT://host:1", "tcp://host:1"),
        "rtsp": ("rtsp://host/live",),
        None: ("http://host/put.mp4", "/v.mp4"),
    }.items():
        for target in targets:
            assert Output.of(target, None).container_format == container
            assert Output.of(target, "nut").container_format == "nut"


def test_a_pipe_needs_a_container() -> None:
    with pytest.raises(ValueError):
        Output.of("pipe:", None)
    assert Output.of("pipe:", "nut").container_format == "nut"


# Outputs that are refused before FFmpeg starts


def test_a_folder_is_no_output(tmp_path: Path) -> None:
    for output in (tmp_path, str(tmp_path), f"{tmp_path}/", f"{tmp_path}/new/"):
        with pytest.raises(IsADirectoryError) as caught:
            endpoints.target(output)
        assert Path(caught.value.filename) == Path(output)
    with pytest.raises(IsADirectoryError):
        endpoints.target("")


def test_missing_folder_or_file_as_folder_raises(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder, error in (("missing/deeper", FileNotFoundError), ("file", NotADirectoryError)):
        with pytest.raises(error) as caught:
            endpoints.target(tmp_path / folder / "video.mp4")
        assert caught.value.filename == str(tmp_path / folder)
    with pytest.raises(ValueError if sys.platform == "win32" else FileNotFoundError):
        endpoints.target(Path("rtmp://host/key"))


def test_link_into_a_missing_folder_raises(tmp_path: Path) -> None:
    link = tmp_path / "video.mp4"
    link.symlink_to(tmp_path / "missing" / "video.mp4")
    with pytest.raises(FileNotFoundError) as caught:
        endpoints.target(link)
    assert caught.value.filename == str(tmp_path / "missing")
    (tmp_path / "missing").mkdir()
    assert endpoints.target(link) == f"file:{link}"
    assert list((tmp_path / "missing").iterdir()) == []


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can get to: pytest's own are for one."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.linux("modes of files")
@pytest.mark.parametrize("what", ["folder", "file"])
def test_unwritable_folder_or_file_raises_permission_error(open_folder: Path, what: str) -> None:
    output = open_folder / "video.mp4"
    if what == "file":
        output.write_bytes(b"kept")
        output.chmod(0o444)
    open_folder.chmod(0o555)
    code = """
    from penstock._ffmpeg.command import endpoints
    if os.geteuid() == 0:  # whom no mode keeps out
        os.setuid(65534)
    try:
        endpoints.target(sys.argv[1])
    except PermissionError as error:
        print(error.filename)
    """
    refused = succeeded(run_script(code, output)).decode().strip()
    assert refused == str(open_folder if what == "folder" else output)
    assert [path.name for path in open_folder.iterdir()] == (["video.mp4"] if what == "file" else [])


@pytest.mark.linux("FIFOs")
def test_devices_and_fifos_are_outputs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for special in ("/dev/null", "/dev/full", tmp_path / "fifo"):
        assert endpoints.target(special) == f"file:{special}"


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (["a.mp4", "b.mp4"], "list"),
        (3, "int"),
        (None, "NoneType"),
        (b"a.mp4", "fsdecode"),
        (io.BytesIO(), "BytesIO"),
    ],
)
def test_object_that_is_no_path_is_refused_at_the_call(given: object, word: str) -> None:
    with pytest.raises(TypeError, match=word):
        endpoints.target(given)  # type: ignore[arg-type]
