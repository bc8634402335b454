"""C's functions of complex numbers, which NumPy calls and Wine 10's C library lacks.

NumPy imports them from the library MATH, which a program can't bring along: Wine has its own. So a library of another
name has them, passes all other names on to Wine's, and takes the place of MATH in NumPy's modules.
"""

from __future__ import annotations

import re
from pathlib import Path

from scripts.debian import output

MATH = b"api-ms-win-crt-math-l1-1-0.dll"
OURS = b"penstock-crt-math.dll"
COMPLEX = re.compile(r"(creal|cimag|cabs|carg|cpow|cexp|clog|csqrt|ca?(?:sin|cos|tan)h?)([fl]?)")
#: Windows passes complex numbers as structs, and MinGW's compiler another way.
PROLOGUE = """#include <complex.h>
#define KIND(NAME, REAL) \\
    typedef struct {REAL r, i;} NAME; \\
    static REAL complex from_##NAME(NAME z) {union {NAME z; REAL complex c;} u = {z}; return u.c;} \\
    static NAME to_##NAME(REAL complex c) {union {REAL complex c; NAME z;} u = {c}; return u.z;}
KIND(D, double)
KIND(F, float)
"""


def function(name: str) -> str | None:
    """The function in C that has this name; None if it isn't of complex numbers."""
    match = COMPLEX.fullmatch(name)
    if match is None:
        return None
    base, suffix = match.groups()
    # Windows' long double is a double.
    kind, real, called = ("F", "float", f"{base}f") if suffix == "f" else ("D", "double", base)
    if base in ("creal", "cimag", "cabs", "carg"):
        return f"{real} our_{name}({kind} z) {{return {called}(from_{kind}(z));}}\n"
    if base == "cpow":
        powers = f"to_{kind}({called}(from_{kind}(a), from_{kind}(b)))"
        return f"{kind} our_{name}({kind} a, {kind} b) {{return {powers};}}\n"
    return f"{kind} our_{name}({kind} z) {{return to_{kind}({called}(from_{kind}(z)));}}\n"


def imported(objdump: str, module: Path) -> set[str]:
    """The names that a module imports from MATH."""
    libraries = output(objdump, "-p", module).split("DLL Name: ")[1:]
    of_math = [names for names in libraries if names.startswith(MATH.decode())]
    return {
        name for names in of_math for name in re.findall(r"^\t[0-9a-f]+\t *\d+ +(\w+)$", names, re.MULTILINE)
    }


def give_to(numpy: Path, programs: Path, mingw: str) -> None:
    """Put the library beside the programs, and its name into NumPy's modules. `mingw` begins the names of its tools."""
    modules = [module for module in numpy.rglob("*.pyd") if MATH in module.read_bytes()]
    names = set().union(*(imported(f"{mingw}objdump", module) for module in modules))
    functions = {name: function(name) for name in sorted(names)}
    source, exports = programs / "complex.c", programs / "complex.def"
    source.write_text(PROLOGUE + "".join(code for code in functions.values() if code))
    targets = (
        f"{name} = {f'our_{name}' if code else f'ucrtbase.{name}'}" for name, code in functions.items()
    )
    exports.write_text("\n".join([f"LIBRARY {OURS.decode()}", "EXPORTS", *targets]))
    options = ("-O1", "-shared", "-static-libgcc", "-o", programs / OURS.decode())
    output(f"{mingw}gcc-win32", *options, source, exports)
    for module in modules:
        module.write_bytes(module.read_bytes().replace(MATH, OURS.ljust(len(MATH), b"\0")))
