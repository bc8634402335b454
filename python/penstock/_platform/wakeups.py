"""Waits for descriptors that a signal ends."""

import sys

if sys.platform == "win32":
    from penstock._platform.windows.wakeups import READER_GONE, begin, end, end_by, seen, wait
else:
    from penstock._platform.linux.wakeups import READER_GONE, begin, end, end_by, seen, wait

__all__ = ["READER_GONE", "begin", "end", "end_by", "seen", "wait"]
