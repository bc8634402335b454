"""Python programs beside this one, and names that one program of a machine has at a time."""

import sys

if sys.platform == "win32":
    from penstock._platform.windows.workers import Link, end_this_program, held_name
else:
    from penstock._platform.linux.workers import Link, end_this_program, held_name

__all__ = ["Link", "end_this_program", "held_name"]
