"""Waits for descriptors that a signal ends."""

import sys

if sys.platform == "win32":
    from penstock._platform.windows.wakeups import begin, end, wait
else:
    from penstock._platform.linux.wakeups import begin, end, wait

__all__ = ["begin", "end", "wait"]
