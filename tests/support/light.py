"""The functions of docs/how-to/hdr.md that make samples of HDR from light."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts import run_page

_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "hdr.md"
[_CODE] = [block.code for block in run_page.blocks(_PAGE) if "def pq_from_nits" in block.code]
_NAMES: dict[str, Any] = {}
exec(_CODE, _NAMES)

pq_from_nits, hlg_from_nits = _NAMES["pq_from_nits"], _NAMES["hlg_from_nits"]
