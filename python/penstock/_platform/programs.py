"""Programs that run beside this one: their start, their pipes, their end, and their processor time."""

import sys

if sys.platform == "win32":
    from penstock._platform.windows.programs import (
        Channel,
        Inlet,
        Program,
        cpu_ticks,
        pipe,
        read_together,
        usable_cpus,
    )
else:
    from penstock._platform.linux.programs import (
        Channel,
        Inlet,
        Program,
        cpu_ticks,
        pipe,
        read_together,
        usable_cpus,
    )

__all__ = ["Channel", "Inlet", "Program", "cpu_ticks", "pipe", "read_together", "usable_cpus"]
