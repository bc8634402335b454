"""Lays out, in build/windows, what it takes to build and test Penstock for Windows on Linux.

    python -m scripts.windows.kit               # all: 3 minutes, 3.5 GB
    python -m scripts.windows.kit rust wine     # only these parts

| part | what is there |
| --- | --- |
| rust | Rust with the sources of its standard library, and MinGW's C compiler |
| wine | Wine, with all that it needs of a newer Debian |
| python | CPython for Windows with NumPy, PyAV, FFmpeg and pytest |

scripts/windows/cargo and scripts/windows/wine run programs of the kit. A part that is there already stays as it is,
unless this file names other versions. Nothing else on this machine changes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from scripts import debian
from scripts.debian import output
from scripts.windows import complex_math

HERE = Path(__file__).parent
KIT = HERE.parents[1] / "build" / "windows"
#: Of this Rust, which Debian 12 builds browsers with, it has the sources as well.
RUST = (
    *("rustc-web=1.96.*", "cargo-web=1.96.*", "rust-web-src=1.96.*"),
    *(
        "gcc-mingw-w64-x86-64-win32=12.2.*",
        "binutils-mingw-w64-x86-64=2.40-2+10*",
        "mingw-w64-x86-64-dev=10.0.*",
    ),
    # What these need is named, too: where `make check` has installed MinGW, apt would leave it out.
    *("gcc-mingw-w64-base=12.2.*", "gcc-mingw-w64-x86-64-win32-runtime=12.2.*", "mingw-w64-common=10.0.*"),
)
#: The second has the locale C.UTF-8, without which Wine's files have names of ASCII only.
WINE = ("wine64=10.0*", "libc-bin")
#: The release of Debian that has them.
WINE_RELEASE = "trixie"
CPYTHON = "org.bytedeco:cpython:3.14.3-1.5.13:jar:windows-x86_64"
CPYTHON_SHA256 = "3291bf3d8f405335ac21dbe55780521fdfd295b0f9f43f7e6e8c55bedd709cb3"
REQUIREMENTS = HERE / "requirements.txt"
#: What the names of its tools begin with.
MINGW = f"{KIT}/rust/usr/bin/x86_64-w64-mingw32-"
#: Maven downloads for a project only.
MAVEN_PROJECT = (
    "<project><modelVersion>4.0.0</modelVersion>"
    "<groupId>x</groupId><artifactId>x</artifactId><version>1</version></project>"
)


def missing() -> list[str]:
    """What this machine lacks for the kit."""
    about = platform.freedesktop_os_release() if sys.platform == "linux" else {}
    needed = {
        "Debian 12": about.get("ID") == "debian" and about.get("VERSION_ID") == "12",
        "an x86-64 processor": platform.machine() == "x86_64",
        "root": os.geteuid() == 0,
    }
    programs = ("apt-get", "dpkg-deb", "mvn", "unshare")
    return [name for name, is_there in needed.items() if not is_there] + [
        name for name in programs if shutil.which(name) is None
    ]


def lay_rust(folder: Path) -> None:
    debian.unpack(folder, *RUST, beside=debian.THIS_MACHINE)


def lay_wine(folder: Path) -> None:
    debian.unpack(folder, *WINE, release=WINE_RELEASE)
    # As the packages' own scripts do, which need a whole Debian. Wine loads a DLL only if it is marked as Wine's own.
    libraries = folder / "usr/lib/x86_64-linux-gnu/wine/x86_64-windows"
    zlib = bytearray((folder / "usr/x86_64-w64-mingw32/lib/zlib1.dll").read_bytes())
    zlib[64:96] = b"Wine builtin DLL".ljust(32, b"\0")
    (libraries / "zlib1.dll").write_bytes(zlib)
    server = folder / "usr/lib/wine/wineserver"
    server.unlink()
    server.symlink_to("wineserver64")
    # Its registry and drive C.
    output(HERE / "wine", "wineboot", "--init")


def lay_python(folder: Path) -> None:
    unpacked = folder.with_name("cpython.new")
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir()
    (unpacked / "pom.xml").write_text(MAVEN_PROJECT)
    copy = ("dependency:copy", f"-Dartifact={CPYTHON}", f"-DoutputDirectory={unpacked}")
    output("mvn", "-q", "-B", "-f", unpacked / "pom.xml", *copy)
    [archive] = unpacked.glob("*.jar")
    if (found := hashlib.sha256(archive.read_bytes()).hexdigest()) != CPYTHON_SHA256:
        raise debian.Refused(f"{archive.name} has another checksum than {CPYTHON_SHA256}: {found}")
    with zipfile.ZipFile(archive) as files:
        files.extractall(unpacked)
    (unpacked / "org/bytedeco/cpython/windows-x86_64").rename(folder)
    shutil.rmtree(unpacked)
    make_python3_dll(folder)
    packages = folder / "lib/site-packages"
    wanted = ["--platform=win_amd64", "--python-version=3.14", "--implementation=cp", "--only-binary=:all:"]
    wanted += ["--no-deps", "--require-hashes", f"--requirement={REQUIREMENTS}"]
    # pip compares with its own Python.
    wanted += ["--ignore-requires-python"]
    output(sys.executable, "-m", "pip", "install", "--quiet", *wanted, "--target", packages)
    complex_math.give_to(packages / "numpy", folder, MINGW)


def make_python3_dll(folder: Path) -> None:
    """The archive lacks the library of the stable ABI. Each of its names leads to that of this version."""
    names = output(f"{MINGW}nm", folder / "libs/python3.lib").split("\n")
    symbols = {words[-1] for words in map(str.split, names) if len(words) > 1 and words[-2] in ("T", "I")}
    lines = ["LIBRARY python3.dll", "EXPORTS"]
    for name in sorted(symbol.removeprefix("__imp_") for symbol in symbols if symbol.startswith("__imp_")):
        lines.append(f"  {name} = python314.{name}" + ("" if name in symbols else " DATA"))
    definition = folder / "python3.def"
    definition.write_text("\n".join(lines))
    output(
        f"{MINGW}gcc-win32", "-shared", "-nostdlib", "-Wl,--entry=0", "-o", folder / "python3.dll", definition
    )


#: How to lay each part, and its versions.
PARTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "rust": (lay_rust, " ".join(RUST)),
    "wine": (lay_wine, " ".join(WINE)),
    "python": (lay_python, f"{CPYTHON} {CPYTHON_SHA256} {REQUIREMENTS.read_text()}"),
}


def lay(part: str) -> None:
    """Lay a part, unless it is there with these versions. One that was cut short is laid again."""
    recipe, versions = PARTS[part]
    folder, stamp = KIT / part, KIT / f"{part}.versions"
    if stamp.exists() and stamp.read_text() == versions:
        return
    print(f"windows: laying {part} into {folder}", file=sys.stderr)
    stamp.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    recipe(folder)
    stamp.write_text(versions)


def main() -> None:
    parts = sys.argv[1:] or list(PARTS)
    if unknown := set(parts) - PARTS.keys():
        sys.exit(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if lacks := missing():
        sys.exit(f"The kit for Windows needs Debian 12 on x86-64 and root; missing: {', '.join(lacks)}")
    KIT.mkdir(parents=True, exist_ok=True)
    try:
        for part in parts:
            lay(part)
    except debian.Refused as error:
        sys.exit(f"windows: {error}")


if __name__ == "__main__":
    main()
