"""Odd surroundings: a home that cannot be written, other locales, odd terminals, notebooks, closed outputs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import printed, run_on_terminal, run_process, with_nothing_to_try
from support.processes import run_script, succeeded

from penstock import probe

FRAMES = bytes(48 * 32 * 3) * 10
RAW = ("--size", "48x32", "--fps", "30000/1001", "--crf", "18.5", "--preset", "ultrafast")
FPS = "30000/1001"


@pytest.fixture(scope="session")
def locales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a locale whose decimal mark is a comma."""
    folder = tmp_path_factory.mktemp("locales")
    command = ["localedef", "-i", "de_DE", "-f", "UTF-8", folder / "de_DE.UTF-8"]
    subprocess.run(command, capture_output=True, check=False)  # it fails by warnings, too
    if not (folder / "de_DE.UTF-8" / "LC_NUMERIC").exists():
        pytest.skip("localedef made no locale")
    return folder


@pytest.mark.linux("locales of localedef")
def test_locale_with_decimal_commas_changes_nothing(locales: Path, tmp_path: Path) -> None:
    code = """
    import locale
    assert locale.setlocale(locale.LC_ALL, "de_DE.UTF-8") and locale.str(1.5) == "1,5"
    path = sys.argv[1]
    with penstock.Encoder(path, size=(48, 32), fps=29.97, crf=18.5, preset="ultrafast") as encoder:
        for _ in range(30):
            encoder.write(bytes(48 * 32 * 3))
    with penstock.Decoder(path, start=0.5) as decoder:
        assert float(decoder.stream.frame_rate) == 29.97
        assert 0.46 < next(decoder).time_s <= 0.5
    """
    environment = os.environ | {"LOCPATH": str(locales), "LC_ALL": "de_DE.UTF-8"}
    succeeded(run_script(code, tmp_path / "a.mp4", env=environment))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {
            "LC_ALL": "C",
            "LANG": "C",
            "PYTHONUTF8": "0",
            "PYTHONIOENCODING": "ascii",
            "TERM": None,
            "HOME": None,
        },
        {"HOME": "/proc/self", "XDG_CACHE_HOME": "/proc/self", "XDG_CONFIG_HOME": "/proc/self"},
    ],
    ids=["C, no terminal, no home", "home that cannot be written"],
)
def test_commands_work_without_locale_terminal_or_home(
    tmp_path: Path, changed: dict[str, str | None]
) -> None:
    environment = {name: value for name, value in (os.environ | changed).items() if value is not None}
    video = tmp_path / "v\N{LATIN SMALL LETTER U WITH DIAERESIS}.mp4"
    assert printed(run_process("encode", "-", video, *RAW, data=FRAMES, env=environment)) == ""
    assert str(probe(video).video[0].frame_rate) == FPS
    assert "48x32" in printed(run_process("probe", video, env=environment)).replace(" x ", "x").replace(
        "×", "x"
    )
    assert run_process("decode", video, "-", env=environment).stdout.startswith(bytes(10))
    assert "Pipes" in printed(run_process("info", env=environment | with_nothing_to_try(tmp_path)))


@pytest.mark.linux("a terminal that a program holds")
@pytest.mark.parametrize("settings", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_progress_fits_40_columns_and_obeys_no_color(tmp_path: Path, settings: dict[str, str]) -> None:
    raw = tmp_path / "raw"
    raw.write_bytes(FRAMES)
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "40"} | settings
    status, shown, _ = run_on_terminal("encode", raw, tmp_path / "v.mp4", *RAW, env=environment)
    assert status == 0
    assert "frames encoded: 10" in " ".join(shown.split())
    if settings:
        assert "\x1b[3" not in shown, "it is colored"
    else:
        text = printed(run_process("info", env=environment | with_nothing_to_try(tmp_path)))
        assert max(map(len, text.splitlines())) <= 40


@pytest.mark.parametrize("command", ["info", "probe", "--help"])
def test_closed_standard_output_shows_no_traceback(tmp_path: Path, command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    arguments = (command, tmp_path / "missing") if command == "probe" else (command,)
    environment = os.environ | with_nothing_to_try(tmp_path)
    with os.fdopen(writer, "wb") as closed:
        done = run_process(*arguments, stdout=closed, env=environment)
    assert (done.returncode, "Traceback" in done.stderr.decode()) == (1, False)
    if sys.platform != "win32":  # where a program always has one
        closed_at_start = run_process(
            *arguments, stdout=None, env=environment, preexec_fn=lambda: os.close(1)
        )
        assert "Traceback" not in closed_at_start.stderr.decode()


@pytest.mark.linux("escape codes of terminals")
def test_progress_bar_in_a_notebook_needs_no_widgets(tmp_path: Path) -> None:
    code = """
        import builtins
        class ZMQInteractiveShell: "By this name rich knows notebooks."
        builtins.get_ipython = ZMQInteractiveShell
        with penstock.Encoder(sys.argv[1], size=(64, 48), fps=30, progress=20) as encoder:
            for _ in range(20):
                encoder.write(bytes(64 * 48 * 3))
                time.sleep(0.06)
        assert "IPython" not in sys.modules and "ipywidgets" not in sys.modules
    """
    done = run_script(code, tmp_path / "v.mp4", env=os.environ | {"TERM": "xterm-color"})
    lines = done.stderr.decode().replace("\x1b[?25h", "").splitlines()
    assert (done.returncode, "warn" in done.stderr.decode().lower()) == (0, False)
    assert done.stderr.count(b"\r\x1b[2K") >= 2  # drawn again in place
    assert done.stderr.count(b"\n") == 1
    assert " 20/20 frames " in lines[-1]


def test_a_subinterpreter_is_refused_and_the_main_one_goes_on() -> None:
    code = """
    import os
    try:
        import _interpreters
        number = _interpreters.create("legacy")
    except ImportError:
        import _xxsubinterpreters as _interpreters
        number = _interpreters.create(isolated=False)
    reader, writer = os.pipe()
    _interpreters.run_string(number, f'''if True:
        import os
        try:
            import penstock
            said = "imported"
        except ImportError as error:
            said = str(error)
        os.write({writer}, said.encode())
    ''')
    assert b"subinterpreter" in os.read(reader, 1000)
    _interpreters.destroy(number)
    with penstock.Writer(writer) as ours:
        ours.write(b"ours")
    assert os.read(reader, 1000) == b"ours"
    """
    succeeded(run_script(code))
