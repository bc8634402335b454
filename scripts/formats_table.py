"""Writes the table of listed pairs into docs/formats.md, from what the tests prove.

python scripts/formats_table.py            # writes it; `make fmt` runs it
python scripts/formats_table.py --check    # fails if it would write something else; `make check` runs it
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock._formats.containers import listed

PAGE = Path(__file__).parents[1] / "docs" / "formats.md"
NAMES = {
    "gif": "GIF (`.gif`)",
    "image2": "numbered images (`%05d.png`, `%05d.jpg`)",
    "matroska": "Matroska (`.mkv`)",
    "mov": "QuickTime (`.mov`)",
    "mp4": "MP4 (`.mp4`)",
    "webm": "WebM (`.webm`)",
}


def rows() -> Iterator[str]:
    yield "| container | encoders of the picture | codecs of the sound |"
    yield "| --- | --- | --- |"
    for name, container in listed().items():
        sounds = ", ".join(f"`{one}`" for one in container.listed_audio) or "none"
        yield f"| {NAMES[name]} | {', '.join(f'`{one}`' for one in container.listed)} | {sounds} |"


def page(text: str) -> str:
    """The page with the table of now."""
    table = "\n".join(rows())
    return re.sub(r"(?s)(<!-- table -->\n\n).*?(?=\n\n`codec)", lambda found: found[1] + table, text)


def main() -> None:
    text = PAGE.read_text()
    if (wanted := page(text)) == text:
        return
    if "--check" in sys.argv:
        sys.exit(f"{PAGE.name} differs from the listed pairs: run `make fmt`")
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
