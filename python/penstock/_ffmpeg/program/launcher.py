"""Confines itself, then runs a program. A script, which `Sandbox.launch` runs: it imports only what is built in.

Arguments: the native module, the source's descriptor, the memory in bytes, the CPU time in seconds, whether all of the
confinement must work (1 or 0), the number of readable paths, these, the program and its arguments.
"""

import _imp
import posix
import sys


def _native(path: str):  # type: ignore[no-untyped-def]  # typing takes long to import
    # As `importlib` loads an extension, which takes milliseconds to import.
    spec = sys.modules["_frozen_importlib"].ModuleSpec("penstock._native", None, origin=path)
    module = _imp.create_dynamic(spec)
    _imp.exec_dynamic(module)
    return module


def _main() -> int:
    native, source, memory_bytes, cpu_s, is_strict, count, *rest = sys.argv[1:]
    readable, command = rest[: int(count)], rest[int(count) :]
    missing = _native(native)._confine(
        readable, source=int(source), memory_bytes=int(memory_bytes), cpu_s=int(cpu_s)
    )
    if missing and is_strict == "1":
        sys.stderr.write(f"the kernel cannot confine {', '.join(missing)}\n")
        return 1
    try:
        posix.execv(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
    return 1


sys.exit(_main())
