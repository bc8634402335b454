"""What the system says of the machine: its memory, settings of the kernel, limits of this process."""

import sys

if sys.platform == "win32":
    from penstock._platform.windows.machine import limit, memory_bytes, setting
else:
    from penstock._platform.linux.machine import limit, memory_bytes, setting

__all__ = ["limit", "memory_bytes", "setting"]
