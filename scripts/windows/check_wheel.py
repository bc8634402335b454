"""Checks a wheel for Windows: its name, licenses and imports, and a first video from it by Wine.

python -m scripts.windows.check_wheel dist/penstock_io-0.1.0-cp311-abi3-win_amd64.whl
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.debian import output
from scripts.windows.kit import HERE, KIT, MINGW

#: What every Windows 10 has, and Python's stable ABI. msvcrt.dll is MinGW's C library, which Windows has for its own
#: use: no descriptor and no memory is passed between it and Python's.
MAY_IMPORT = re.compile(
    r"kernel32|ntdll|bcrypt|bcryptprimitives|ws2_32|userenv|advapi32|msvcrt|python3|api-ms-win-(?:crt|core)-[\w-]+"
)
MAX_BYTES = 4_000_000
FIRST_VIDEO = """
import penstock
assert "wheel" in penstock.__file__, penstock.__file__
with penstock.Encoder("first.mp4", size=(640, 360), fps=30, preset="ultrafast") as encoder:
    for number in range(30):
        with encoder.lease() as view:
            view[...] = number
with penstock.Decoder("first.mp4") as decoder:
    assert [frame.shape for frame in decoder] == [(360, 640, 3)] * 30
print(f"{penstock.__version__}: a video of 30 frames was written and read under Wine")
"""


def check_imports(module: Path) -> None:
    names = re.findall(r"DLL Name: (.+)\.dll", output(f"{MINGW}objdump", "-p", module), re.IGNORECASE)
    if others := [name for name in names if not MAY_IMPORT.fullmatch(name.lower())]:
        sys.exit(f"{module.name} imports what a Windows may lack: {', '.join(others)}")


def first_video(wheel: Path, folder: Path) -> str:
    """Installed by pip for Windows, without the sources on the path."""
    asked = ("--platform=win_amd64", "--python-version=3.14", "--only-binary=:all:", "--no-deps")
    output(sys.executable, "-m", "pip", "install", "--quiet", *asked, "--target", folder / "wheel", wheel)
    (folder / "first.py").write_text(FIRST_VIDEO)
    # In a file, for Wine's own processes keep a pipe open.
    with (folder / "said").open("w+") as said:
        done = subprocess.run(
            [HERE / "wine", KIT / "python/python.exe", "first.py"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": f"Z:{folder}/wheel"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        said.seek(0)
        text = said.read().strip()
    if done.returncode:
        sys.exit(f"the first video under Wine failed:\n{text}")
    return text.splitlines()[-1]


def main() -> None:
    wheel = Path(sys.argv[1]).resolve()
    if not wheel.name.endswith("-cp311-abi3-win_amd64.whl"):
        sys.exit(f"{wheel.name} must end in -cp311-abi3-win_amd64.whl")
    if wheel.stat().st_size > MAX_BYTES:
        sys.exit(f"{wheel.name} has {wheel.stat().st_size} bytes, more than {MAX_BYTES}")
    with TemporaryDirectory() as name:
        folder = Path(name)
        with zipfile.ZipFile(wheel) as files:
            [licenses] = [each for each in files.namelist() if each.endswith("THIRD-PARTY.txt")]
            text = files.read(licenses).decode()
            for part in ("libstd-rust", "mingw-w64", "GCC RUNTIME LIBRARY EXCEPTION"):
                if part not in text:
                    sys.exit(f"{licenses} says nothing of {part}")
            check_imports(Path(files.extract("penstock/_native.pyd", folder)))
        if importlib.util.find_spec("abi3audit"):
            output(sys.executable, "-m", "abi3audit", "--strict", wheel)
        else:
            print("not checked: the stable ABI (needs: pip install abi3audit)")
        print(first_video(wheel, folder))
    print(f"{wheel.stat().st_size} bytes: {wheel}")


if __name__ == "__main__":
    main()
