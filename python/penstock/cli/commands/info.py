"""``penstock info``"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from penstock import cpu
from penstock._formats import encoders
from penstock.cli import machine
from penstock.cli.cpu_tree import counted, cpu_tree, in_bytes, legend
from penstock.cli.options import json_option

#: Each way to move bytes, and its method where the kernel refuses nothing.
BEST_METHODS = {"zero-copy": "zero-copy", "relay": "splice", "copy": "copy_file_range", "tee": "tee"}


@click.command(epilog="Example: penstock info --json | jq .cpus.l3_domains")
@json_option("Print everything as JSON.")
def info(as_json: bool) -> None:
    """Show what Penstock finds on this machine.

    It shows the CPUs, the priorities that threads may have, pipes, huge pages, FFmpeg and OpenGL. Priorities are tried
    on short-lived threads. Hardware encoders (--codec auto-h264) are tried with a frame of 1920x1080. OpenGL is tried
    in a process of its own.
    """
    found = machine.gather()
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _print(Console(highlight=False), found)


def _print(console: Console, found: dict[str, Any]) -> None:
    memory = in_bytes(found["memory_bytes"])
    console.print(
        Text(f"penstock {found['penstock']}, Python {found['python']}, {found['kernel']}, {memory} of memory")
    )
    topology = cpu.topology()
    _heading(console, "CPUs")
    console.print(Padding(cpu_tree(topology), (0, 0, 0, 2), expand=False))
    _lines(console, legend(topology))
    _lines(console, [_usable_line(topology, found["usable_cpus"])])
    _lines(console, (f"note: {note}" for note in topology.notes))
    _heading(console, "Priorities that a thread may have")
    _lines(console, _priority_lines(found["priorities"]))
    _heading(console, "Pipes")
    _lines(console, _pipe_lines(found["pipes"]))
    _heading(console, "Huge pages")
    _lines(console, _huge_page_lines(found["huge_pages"], found["pipes"]["methods"]))
    _heading(console, "FFmpeg")
    _lines(console, _ffmpeg_lines(found["ffmpeg"]))
    _heading(console, "OpenGL")
    _lines(console, _gl_lines(found["gl"]))


def _heading(console: Console, title: str) -> None:
    console.print()
    console.print(Text(title, style="bold underline"))


def _lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))


def _usable_line(topology: cpu.Topology, usable: float) -> str:
    allowed = sum(one.allowed for one in topology.logical_processors)
    if usable == allowed:
        return f"this process can keep {counted(allowed, 'CPU')} busy"
    return f"this process may run on {counted(allowed, 'CPU')}; a control group's quota lets it keep {usable:.3g} busy"


def _priority_lines(priorities: dict[str, Any]) -> Iterable[str]:
    levels = priorities["levels"]
    granted = [level for level, answer in levels.items() if answer["granted"]]
    yield f"granted: {', '.join(granted) or 'none'}"
    for answer in levels.values():
        yield from answer["notes"]
    if priorities["autogroup"]:
        yield "autogroup is on: niceness weighs only among the threads of one session (sched(7))"


def _pipe_lines(pipes: dict[str, Any]) -> Iterable[str]:
    wanted, granted = in_bytes(pipes["wanted_bytes"]), pipes["granted_bytes"]
    if granted is None:
        yield "the size of a pipe is unknown"
    else:
        yield f"a pipe of Penstock gets {in_bytes(granted)} of the {wanted} it asks for"
    if most := pipes["max_size_bytes"]:
        yield f"at most {in_bytes(most)} each without a privilege (pipe-max-size)"
    if pages := pipes["user_pages_soft"]:
        total = in_bytes(pages * pipes["page_bytes"])
        yield f"a user's pipes may hold {total} together, before new ones become small (pipe-user-pages-soft)"
    for name, best in BEST_METHODS.items():
        used = pipes["methods"][name]
        yield f"{name}: {used['method']}" + ("" if used["method"] == best else f" ({used['reason']})")


def _huge_page_lines(pages: dict[str, Any], methods: dict[str, Any]) -> Iterable[str]:
    mode = pages["transparent"]
    if mode is None:
        yield "none that staged writes could use"
        return
    size = in_bytes(pages["size_bytes"])
    gives_pages = methods["zero-copy"]["method"] == "zero-copy"
    use = "staged writes use them" if mode != "never" and gives_pages else "staged writes do without"
    yield f"transparent huge pages: {mode} ({size}); {use}"
    yield f"in shared memory: {pages['shared_memory'] or 'unknown'}"


def _ffmpeg_lines(ffmpeg: dict[str, Any]) -> Iterable[str]:
    if ffmpeg["path"] is not None:
        yield f"{ffmpeg['path']}, version {ffmpeg['version'] or 'unknown'}"
    if ffmpeg["of_listed_pairs"] not in (None, ffmpeg["path"]):
        yield f"listed pairs are encoded by {ffmpeg['of_listed_pairs']}, which starts sooner"
    if ffmpeg["error"] is not None:
        yield ffmpeg["error"]
        return
    names = {
        kind: [one["name"] for one in ffmpeg["encoders"] if one["kind"] == kind]
        for kind in ("video", "audio")
    }
    yield f"lists {counted(len(names['video']), 'encoder')} of video and {len(names['audio'])} of audio"
    yield f"the common ones: {', '.join(one for one in encoders.common() if one in names['video']) or 'none'}"
    for codec, chosen in ffmpeg["auto"].items():
        yield f"{codec}: {'; '.join([chosen['encoder'] or 'none', *chosen['skipped_encoders']])}"
    yield "hardware encoders (nvenc, vaapi) are listed even if the hardware is missing"


def _gl_lines(gl: dict[str, Any]) -> Iterable[str]:
    if gl["error"] is not None:
        yield f"no context: {gl['error']}"
    else:
        yield f"{gl['renderer']} ({gl['vendor']}), version {gl['version']}"
