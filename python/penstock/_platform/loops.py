"""How a native thread wakes an event loop."""

import sys

if sys.platform == "win32":
    from penstock._platform.windows.loops import watch
else:
    from penstock._platform.linux.loops import watch

__all__ = ["watch"]
