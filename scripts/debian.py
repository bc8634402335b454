"""Debian's packages in a folder of their own: nothing else on this machine changes.

apt takes them from where this machine gets its own, and checks them by Debian's signatures.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
#: The packages that this machine has, and those that a new one has.
THIS_MACHINE = Path("/var/lib/dpkg/status")
NOTHING = Path("/dev/null")


class Refused(Exception):
    """A program failed. The message has its output."""


def output(*command: str | Path) -> str:
    """What a program prints. Raises `Refused` with it if the program fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise Refused(done.stdout.strip())
    return done.stdout


def unpack(
    folder: Path,
    *packages: str,
    architecture: str = "amd64",
    release: str | None = None,
    beside: Path = NOTHING,
) -> None:
    """Unpack packages, which may be there too, and all that they need beside those that are there.

    `release` is another release of Debian than this machine's. Raises `Refused` if one can't be had.
    """
    apt = folder.absolute() / "apt"
    apt.mkdir(parents=True)
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",
        "Dir::Cache": apt,
        "Dir::State": apt,
        "Dir::State::status": beside,
    }
    if release is not None:
        names = (
            "apt-get",
            "indextargets",
            "--format",
            "$(REPO_URI)",
            "Created-By: Packages",
            "Label: Debian",
        )
        source = f"deb [signed-by={KEYS}] {output(*names).split()[0]} {release} main\n"
        (apt / "release.list").write_text(source)
        settings |= {"Dir::Etc::sourcelist": apt / "release.list", "Dir::Etc::sourceparts": "-"}
    apt_get = ("apt-get", *(f"-o{name}={value}" for name, value in settings.items()))
    output(*apt_get, "update")
    output(
        *apt_get, "install", "--reinstall", "--download-only", "--yes", "--no-install-recommends", *packages
    )
    for package in (apt / "archives").glob("*.deb"):
        output("dpkg-deb", "--extract", package, folder)
    shutil.rmtree(apt)
    # Since Debian 13, packages have their libraries there only.
    if not (folder / "lib").exists():
        (folder / "lib").symlink_to("usr/lib")
