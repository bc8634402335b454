"""``penstock info``: of this machine, and of one that lacks things."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.command_line import delivered, failed, printed, run, run_process, with_nothing_to_try
from support.processes import script

import penstock
from penstock import _native, cpu
from penstock.cli import machine
from penstock.cli.cpu_tree import as_ranges, cpu_tree, in_bytes, legend


def shown(**environment: str) -> str:
    return printed(run("info", env=os.environ | environment))


def told(**environment: str) -> dict[str, Any]:
    return json.loads(printed(run("info", "--json", env=os.environ | environment)))


def test_info_text_has_every_part(tmp_path: Path) -> None:
    text = shown(NO_COLOR="1", COLUMNS="100", **with_nothing_to_try(tmp_path))
    for title in ("CPUs", "Priorities", "Pipes", "Huge pages", "FFmpeg", "OpenGL"):
        assert f"\n{title}" in text
    topology = cpu.topology()
    for package in topology.packages:
        assert f"package {package.id}: " in text
    words = " ".join(text.replace("(", " ").split())
    granted = [level for level, applied in _native._try_priorities() if applied.priority == level]
    assert f"granted: {', '.join(granted[:4])}" in words
    assert f"penstock {penstock.__version__}" in text


def test_info_prints_ascii_on_an_ascii_terminal(tmp_path: Path) -> None:
    environment = (
        os.environ
        | with_nothing_to_try(tmp_path)
        | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    )
    assert delivered(run_process("info", env=environment)).isascii()


def test_info_json_matches_the_machine() -> None:
    found, topology = told(PENSTOCK_FFMPEG="/nowhere/ffmpeg"), cpu.topology()
    assert found["schema"] == 1
    assert found["cpus"]["model"] == topology.model
    assert found["usable_cpus"] == cpu.usable()
    assert [one["id"] for one in found["cpus"]["cores"]] == [core.id for core in topology.cores]
    shared = [list(domain.logical_processors) for domain in topology.l3_domains]
    assert [one["logical_processors"] for one in found["cpus"]["l3_domains"]] == shared
    levels, tried = found["priorities"]["levels"], dict(_native._try_priorities())
    assert list(levels) == list(tried)
    for level, applied in tried.items():
        granted = applied.priority == level
        assert (levels[level]["nice"], levels[level]["granted"]) == (applied.nice, granted)
    if sys.platform == "win32":
        memory_bytes = sum(node.memory_bytes or 0 for node in topology.numa_nodes)
    else:  # a virtual machine's nodes may count less, while memory is plugged into it
        memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert found["memory_bytes"] == pytest.approx(memory_bytes, rel=0.01)
    assert set(found["gl"]) == {"renderer", "vendor", "version", "error"}
    assert (found["gl"]["renderer"] is None) == (found["gl"]["error"] is not None)


@pytest.mark.linux("/proc")
def test_info_json_has_the_sizes_and_methods_of_pipes() -> None:
    pipes = machine.pipes()
    assert pipes["max_size_bytes"] == int(Path("/proc/sys/fs/pipe-max-size").read_text())
    reader, writer = penstock.pipes.make_pipe(capacity_bytes=pipes["wanted_bytes"])
    with reader, writer:
        assert pipes["granted_bytes"] == writer.capacity_bytes
    assert pipes["methods"].keys() == {"zero-copy", "relay", "copy", "tee"}
    assert pipes["methods"]["relay"] == {"method": "splice", "reason": "there is a pipe at one end"}


@pytest.mark.skipif(sys.platform != "win32", reason="Linux has them")
def test_info_of_windows_has_no_settings_of_a_linux_that_runs_wine() -> None:
    assert machine.pipes()["max_size_bytes"] is None and machine.huge_pages()["transparent"] is None
    assert machine.pipes()["methods"]["copy"]["method"] == "read-write"


def test_info_json_lists_the_encoders_of_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_USUAL_SIZE", (64, 64))  # whose encoders are tried in no time
    environment = with_nothing_to_try(tmp_path)
    ffmpeg = told(PYTHONPATH=environment["PYTHONPATH"])["ffmpeg"]
    if ffmpeg["error"] is not None:
        pytest.skip(ffmpeg["error"])
    shown = subprocess.run([ffmpeg["path"], "-version"], capture_output=True, text=True, check=True)
    assert f" {ffmpeg['version']} " in shown.stdout.partition("\n")[0]
    names = {(one["kind"], one["name"]) for one in ffmpeg["encoders"]}
    assert {("video", "rawvideo"), ("audio", "pcm_s16le")} <= names
    # The legend is no encoder, though its lines look like one.
    assert not names & {("video", "="), ("audio", "="), ("subtitle", "=")}


def test_info_names_the_ffmpeg_of_listed_pairs(tmp_path: Path) -> None:
    wheel = pytest.importorskip("imageio_ffmpeg").get_ffmpeg_exe()
    environment = with_nothing_to_try(tmp_path)
    assert told(**environment)["ffmpeg"]["of_listed_pairs"] is None
    script(tmp_path / "ffmpeg", "exit 3")
    found = told(**environment | {"PATH": str(tmp_path), "PENSTOCK_FFMPEG": ""})["ffmpeg"]
    assert (found["path"], found["of_listed_pairs"]) == (str(tmp_path / "ffmpeg"), wheel)


def test_info_works_without_ffmpeg(tmp_path: Path) -> None:
    environment = with_nothing_to_try(tmp_path)
    found = told(**environment)
    assert "/nowhere/ffmpeg" in found["ffmpeg"]["error"]
    assert (found["ffmpeg"]["path"], found["ffmpeg"]["encoders"]) == (None, [])
    assert "/nowhere/ffmpeg" in shown(**environment)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("echo it is broken >&2; exit 3", "it is broken"),
        ("kill -SEGV $$", "was killed by SIGSEGV"),
        ("exec sleep 60", "didn't end within 2 s"),
        ("printf 'hello \\377'", None),
    ],
)
def test_info_works_with_an_ffmpeg_that_fails(
    text: str, error: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "PATIENCE_S", 2.0)
    path = script(tmp_path / "ffmpeg", text)
    found = told(**with_nothing_to_try(tmp_path) | {"PENSTOCK_FFMPEG": str(path)})["ffmpeg"]
    assert found["encoders"] == [] and (found["error"] is None if error is None else error in found["error"])
    assert error is None or found["path"] == str(path)


@pytest.mark.parametrize(
    ("module", "error"),
    [
        ("raise ImportError('no module for you')", "no module for you"),
        ("def create_context(**_): raise Exception('no display')", "no display"),
        pytest.param(
            "import os; os.abort()",
            "was killed by SIGABRT",
            marks=pytest.mark.linux("signals in exit statuses"),
        ),
        ("import os; os._exit(0)", ""),
    ],
)
def test_info_works_without_opengl(module: str, error: str, tmp_path: Path) -> None:
    """A ModernGL, or a driver below it, that fails takes nothing else with it."""
    (tmp_path / "moderngl.py").write_text(module)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    found = told(PYTHONPATH=path, PENSTOCK_FFMPEG="/nowhere/ffmpeg")
    assert found["gl"]["renderer"] is None
    assert error in found["gl"]["error"]
    assert found["cpus"]["cores"]


def test_info_does_not_import_moderngl_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "moderngl.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    machine.gl()
    assert not (tmp_path / "ran").exists()


def test_wrong_usage_exits_with_2() -> None:
    assert "No such option" in failed(run("info", "--xml"), status=2)


# The drawing


def two_packages(**changes: object) -> cpu.Topology:
    """Two packages: one with cores of two kinds around two L3 caches, one with what is left."""
    performance, efficiency = ("performance", "cpu_capacity"), ("efficiency", "cpu_capacity")
    cores = (
        cpu.Topology.Core(0, 0, *performance, (0, 1)),
        cpu.Topology.Core(1, 0, *performance, (2, 3)),
        cpu.Topology.Core(2, 0, *efficiency, (4,)),
        cpu.Topology.Core(3, 1, *efficiency, (6,)),
    )
    processors = tuple(
        cpu.Topology.LogicalProcessor(number, None, None, 0, number != 5, number != 3, (), None, None)
        for number in range(7)
    )
    fields = {
        "model": "[red]A Model[/red]",
        "packages": (
            cpu.Topology.Package(0, (0, 1, 2), (0, 1, 2, 3, 4)),
            cpu.Topology.Package(1, (3,), (6,)),
        ),
        "numa_nodes": (
            cpu.Topology.NumaNode(0, 3 << 30, (0, 1, 2, 3, 4, 6)),
            cpu.Topology.NumaNode(1, None, ()),
        ),
        "cores": cores,
        "logical_processors": processors,
        "l1d_domains": (),
        "l2_domains": (),
        "l3_domains": (cpu.Topology.CacheDomain(32 << 20, (0, 1)), cpu.Topology.CacheDomain(None, (2, 3, 4))),
        "notes": (),
    }
    return cpu.Topology(**(fields | changes))


def drawn(topology: cpu.Topology) -> str:
    console = Console(width=80, highlight=False)
    with console.capture() as capture:
        console.print(cpu_tree(topology))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def test_drawing_shows_packages_caches_and_cores() -> None:
    assert drawn(two_packages()) == (
        "[red]A Model[/red]\n"
        "├── package 0: 3 cores\n"
        "│   ├── L3 cache of 32 MiB: 2 CPUs\n"
        "│   │   └── performance: [0,1]\n"
        "│   └── L3 cache of unknown size: 3 CPUs\n"
        "│       ├── performance: [2,(3)]\n"
        "│       └── efficiency: [4]\n"
        "└── package 1: 1 core\n"
        "    └── no L3 cache known: 1 CPU\n"
        "        └── efficiency: [6]"
    )
    assert legend(two_packages()) == [
        "memory: node 0 near CPUs 0-4,6, 3 GiB; node 1 near CPUs none",
        "not for this process, in parentheses: 3",
        "offline: 5",
        "kinds of cores are read from: cpu_capacity",
    ]


def test_drawing_omits_the_kind_if_all_cores_are_alike() -> None:
    alike = tuple(
        cpu.Topology.Core(core.id, core.package, "performance", "assumed", core.logical_processors)
        for core in two_packages().cores
    )
    assert "cores: [2,(3)] [4]" in drawn(two_packages(cores=alike))
    assert len(legend(two_packages(cores=alike))) == 3


def test_the_drawing_shows_every_cpu_of_a_large_machine_in_any_width() -> None:
    cores = tuple(cpu.Topology.Core(n, 0, "performance", "assumed", (n, n + 256)) for n in range(256))
    everything = tuple(range(512))
    topology = two_packages(
        model=None,
        cores=cores,
        packages=(cpu.Topology.Package(0, tuple(range(256)), everything),),
        l3_domains=(cpu.Topology.CacheDomain(1 << 20, everything),),
        logical_processors=tuple(
            cpu.Topology.LogicalProcessor(n, n % 256, 0, 0, True, True, (), None, None) for n in everything
        ),
    )
    words = drawn(topology).replace("│", " ").split("[")
    assert len(words) == 256 + 1
    assert "255,511]" in words[-1]


@pytest.mark.parametrize(
    ("numbers", "text"), [((), ""), ((3,), "3"), ((0, 1, 2, 3, 8), "0-3,8"), ({5, 1, 4}, "1,4-5")]
)
def test_ranges_are_formatted(numbers: tuple[int, ...], text: str) -> None:
    assert as_ranges(numbers) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (None, "unknown size"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536 << 10, "1.5 MiB"),
        (1023 << 20, "1023 MiB"),
        (35.75 * 2**20, "35.8 MiB"),
        (5 << 40, "5 TiB"),
        (5000 << 40, "5000 TiB"),
    ],
)
def test_sizes_are_formatted(nbytes: int | None, text: str) -> None:
    assert in_bytes(None if nbytes is None else int(nbytes)) == text
