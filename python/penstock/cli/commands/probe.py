"""``penstock probe``"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock._common.messages import show_name
from penstock._decoding.options import DecodeOptions
from penstock._facts.info import MediaInfo, clock, facts_of_file, facts_of_streams, ratio
from penstock._facts.probing import PATIENCE_S
from penstock._facts.probing import probe as probe_media
from penstock.cli.options import (
    file_names,
    json_option,
    options_of,
    parsed,
    seconds,
)
from penstock.errors import PenstockError

#: The width of an output that is no terminal. Programs such as grep want whole lines.
UNWRAPPED_COLUMNS = 1000


@click.command(
    epilog="\b\n"
    "Examples:\n"
    "  penstock probe holiday.mp4\n"
    "  penstock probe *.mkv\n"
    "  penstock probe clip.mov --json | jq .video[0].frame_rate"
)
@click.argument("files", metavar="FILE...", shell_complete=file_names, nargs=-1, required=True)
@click.option(
    "--timeout",
    "timeout",
    metavar="SECONDS",
    default=f"{PATIENCE_S:g}",
    show_default=True,
    callback=parsed(seconds),
    help="Seconds to wait for each FILE.",
)
@options_of(DecodeOptions, only=("follow_playlists", "isolated"))
@json_option("Print everything as JSON: a list if there are several FILEs.")
def probe(
    files: tuple[str, ...],
    timeout: float,
    follow_playlists: bool,
    isolated: bool,
    as_json: bool,
) -> None:
    """Show what video and audio files contain.

    It shows the container, and the streams with their sizes, frame rates and colors. A FILE is a path, or a URL that
    FFmpeg knows.

    Exit status: 0 if all FILEs could be read; 1 if a FILE couldn't be read, after all others were shown; 2 for wrong
    usage.
    """
    found: list[MediaInfo] = []
    for name in files:
        with _reported_failures():
            info = probe_media(
                name,
                timeout=timeout,
                follow_playlists=follow_playlists,
                isolated=isolated,
            )
            found.append(info)
            if not as_json:
                _print(info)
    if as_json and found:
        things = [asdict(info) for info in found]
        click.echo(json.dumps(things if len(files) > 1 else things[0], indent=2, default=ratio))
    if len(found) < len(files):
        sys.exit(1)


@contextmanager
def _reported_failures() -> Iterator[None]:
    """Report a failure in one line, so that the next file is shown as well."""
    try:
        yield
    except (PenstockError, ValueError) as error:  # such as an isolated URL
        click.echo(f"Error: {_in_one_line(error)}", err=True)
    except OSError as error:
        if error.filename is None:
            raise  # from standard output
        click.echo(f"Error: {show_name(str(error.filename))}: {error.strerror}", err=True)


def _print(info: MediaInfo) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=UNWRAPPED_COLUMNS)
    console.print(Text(f"{_writable(show_name(info.path))}: {', '.join(facts_of_file(info))}", style="bold"))
    table = Table.grid(padding=(0, 2, 0, 0))
    for number, kind, codec, facts in facts_of_streams(info):
        table.add_row(f"  #{number}", kind, Text(codec), Text(", ".join(facts)))
    for chapter in info.chapters:
        table.add_row("", "chapter", clock(chapter.start_s), Text(_writable(show_name(chapter.title or ""))))
    with console.capture() as shown:
        console.print(table if table.rows else "  no video and no audio")
    # rich pads the last column with blanks.
    click.echo("\n".join(line.rstrip() for line in shown.get().splitlines()))


def _in_one_line(error: object) -> str:
    """Escape what a terminal would obey: names of files and FFmpeg's messages may have any characters."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in str(error))


def _writable(name: str) -> str:
    """Escape what standard output cannot encode."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"  # a closed one is None
    return name.encode(encoding, "backslashreplace").decode(encoding)
