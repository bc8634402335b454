"""File descriptors: duplicates, what a pipe holds, and files for other programs."""

import sys

if sys.platform == "win32":
    from penstock._platform.windows.descriptors import (
        above_standard,
        close_all_of,
        duplicate,
        for_libav,
        grow_pipe,
        in_memory,
        is_open_for,
        pipe_capacity,
        release,
        status_of,
        sync,
        unread_bytes,
        url_of,
        waits_to_read,
    )
else:
    from penstock._platform.linux.descriptors import (
        above_standard,
        close_all_of,
        duplicate,
        for_libav,
        grow_pipe,
        in_memory,
        is_open_for,
        pipe_capacity,
        release,
        status_of,
        sync,
        unread_bytes,
        url_of,
        waits_to_read,
    )

__all__ = [
    "above_standard",
    "close_all_of",
    "duplicate",
    "for_libav",
    "grow_pipe",
    "in_memory",
    "is_open_for",
    "pipe_capacity",
    "release",
    "status_of",
    "sync",
    "unread_bytes",
    "url_of",
    "waits_to_read",
]
