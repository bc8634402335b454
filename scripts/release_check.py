"""What a release needs. Each check prints a line with what it found; the exit status is 1 if one of them failed.

    python -m scripts.release_check                # `make release-check` runs it
    python -m scripts.release_check links crates   # only these

A check that this machine lacks something for is skipped, and its line says what to install.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts import debian
from scripts.docs import dead_links_of_repository

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
#: What stands for the project's home until it has one, in links and among the authors (RELEASING.md).
PLACEHOLDER = "OWNER"
#: Files that speak of the placeholder itself.
ABOUT_PLACEHOLDER = {"scripts/release_check.py", "scripts/tests/test_release_check.py", "RELEASING.md"}
AARCH64 = "aarch64-unknown-linux-gnu"
ONE_PIPE = """
import os, platform, penstock
reader, end = os.pipe()
data = os.urandom(1 << 20)
writer = penstock.Writer(end)
writer.write(data)
read = b""
while len(read) < len(data):
    read += os.read(reader, 1 << 20)
writer.close()
assert read == data
print(f"{penstock.__version__} on {platform.machine()}: {len(read)} bytes through one pipe")
"""


class Failed(Exception):
    """Something that a release must not have."""


class Skipped(Exception):
    """This machine lacks something; the message says what to install."""


def output(*command: str | Path) -> str:
    """What a program prints. Raises `Failed` with it if the program fails."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise Failed(f"{shlex.join(map(str, command))}\n{done.stdout}")
    return done.stdout.strip()


def need(program: str, remedy: str) -> None:
    """Skip the check if a program is not on the PATH."""
    if shutil.which(program) is None:
        raise Skipped(f"{program} is missing: {remedy}")


def version() -> str:
    """The changelog begins with the version of the crates and the wheel, and a tag of this commit is of it."""
    package = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    heading = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    if heading.split()[0] != package["version"]:
        raise Failed(f"CHANGELOG.md begins with {heading}, and Cargo.toml has {package['version']}")
    tags = output("git", "tag", "--points-at", "HEAD", "v*").split()
    if tags and (tags != [f"v{package['version']}"] or "unreleased" in heading):
        raise Failed(f"CHANGELOG.md begins with {heading}, and the tag is {' '.join(tags)}")
    return f"Cargo.toml and CHANGELOG.md have {heading}; the tag is {' '.join(tags) or 'missing'}"


def home() -> str:
    """The packages and pages name the project's home and authors, the same ones, and no placeholder."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    crates = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    if crates["repository"] != project["urls"]["Source"]:
        raise Failed(f"Cargo.toml has {crates['repository']}, and pyproject.toml {project['urls']['Source']}")
    if crates["authors"] != [author["name"] for author in project["authors"]]:
        raise Failed("Cargo.toml and pyproject.toml must name the same authors")
    files = [ROOT / name for name in output("git", "ls-files").splitlines() if name not in ABOUT_PLACEHOLDER]
    is_placeholder = re.compile(rf"\b{PLACEHOLDER}\b".encode()).search
    if left := [file for file in files if file.is_file() and is_placeholder(file.read_bytes())]:
        names = ", ".join(str(file.relative_to(ROOT)) for file in left)
        raise Failed(f"{PLACEHOLDER} must be the owner of the project's home in {names}")
    return f"the home is {crates['repository']}"


def links() -> str:
    """A reader on a code host can follow the links of the committed pages."""
    if dead := dead_links_of_repository():
        raise Failed("\n".join(["these lead to nothing that is committed:", *dead]))
    return "those of all committed pages lead to committed files and their headings"


def workflows() -> str:
    """actionlint finds no fault in the workflows."""
    need("go", "https://go.dev/dl (it builds actionlint)")
    output("make", "check-workflows")
    return "actionlint finds no fault"


def crates() -> str:
    """Each crate can be packed, and builds from what was packed, with its tests and examples."""
    unpublished = ["--exclude", "penstock-python", "--exclude", "penstock-benches"]
    said = output("cargo", "package", "--workspace", *unpublished, "--all-features")
    packed = re.findall(r"Verifying (\S+) v(\S+)", said)
    with TemporaryDirectory() as folder:
        patches = ["[workspace]", 'members = ["*"]', 'resolver = "3"', "[patch.crates-io]"]
        for name, number in packed:
            with tarfile.open(ROOT / "target" / "package" / f"{name}-{number}.crate") as files:
                files.extractall(folder, filter="data")
            patches.append(f'{name} = {{ path = "{name}-{number}" }}')
        Path(folder, "Cargo.toml").write_text("\n".join(patches))
        # Its own folder of builds stays, so that the next run compiles our crates only.
        built = ("env", f"CARGO_TARGET_DIR={ROOT}/target/packed", "cargo", "test", "--no-run")
        output(*built, "--workspace", "--all-features", "--manifest-path", f"{folder}/Cargo.toml")
    return f"packed, and built from that with their tests: {', '.join(name for name, _ in packed)}"


def other_systems() -> str:
    """The crates that are for other systems, too, compile for them."""
    if said := output("scripts/check_systems"):
        raise Failed(said)
    return "Windows and macOS: the crates for them compile"


def sdist() -> str:
    """The sdist has committed files only, and pip builds it in an environment with nothing else."""
    for archive in DIST.glob("*.tar.gz"):
        archive.unlink()
    # Of a wheel. Nothing is linked into an sdist.
    shutil.rmtree(ROOT / "target" / "licenses", ignore_errors=True)
    output("maturin", "sdist", "--out", DIST)
    [archive] = DIST.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    if strays := names - {"PKG-INFO", *output("git", "ls-files").splitlines()}:
        raise Failed(f"{archive.name} has files that are not committed: {', '.join(sorted(strays))}")
    with TemporaryDirectory() as folder:
        output(sys.executable, "-m", "venv", folder)
        # Compiled in a folder that stays, so that the next run compiles our crates only.
        bare = ("env", "-u", "VIRTUAL_ENV", "-u", "PYO3_PYTHON", f"CARGO_TARGET_DIR={ROOT}/target/sdist")
        output(*bare, f"{folder}/bin/pip", "install", archive)
        said = output(f"{folder}/bin/penstock", "--version")
    return f"{len(names)} files, all committed; built and installed in a new environment: {said}"


def wheel() -> str:
    """The wheel for this processor is right, and works in a new environment."""
    return output("make", "--no-print-directory", "wheel").splitlines()[-1]


def wheel_for_aarch64() -> str:
    """The wheel for aarch64, built here by zig, is right."""
    if not Path(output("rustc", "--print", "target-libdir", "--target", AARCH64)).is_dir():
        raise Skipped(f"Rust has no standard library for aarch64: rustup target add {AARCH64}")
    return output("make", "--no-print-directory", "wheel", f"TARGET={AARCH64}").splitlines()[-1]


def wheel_in_qemu() -> str:
    """The wheel for aarch64 with Debian's Python for it: the import, and one pipe."""
    need("qemu-aarch64", "apt-get install qemu-user")
    need("apt-get", "it needs a Debian")
    built = next(DIST.glob("*_aarch64.whl"), None)
    if built is None:
        raise Skipped("dist has no wheel for aarch64: see above")
    with TemporaryDirectory() as name:
        folder = Path(name)
        try:
            debian.unpack(folder, "python3", "libstdc++6", architecture="arm64")
        except debian.Refused as error:
            raise Skipped(f"apt-get must be Debian's, which has packages for arm64: {error}") from None
        python = ("qemu-aarch64", "-L", folder, folder / "usr/bin/python3")
        minor = output(*python, "-c", "import sys; print(sys.version_info.minor)")
        wanted = [f"--platform=manylinux_2_{glibc}_aarch64" for glibc in (17, 28)]
        wanted += ["--only-binary=:all:", f"--python-version=3.{minor}"]
        output(sys.executable, "-m", "pip", "install", *wanted, "--target", folder / "packages", built)
        return output("env", f"PYTHONPATH={folder}/packages", *python, "-c", ONE_PIPE)


def descriptions() -> str:
    """PyPI takes what is in dist, and can show its description."""
    files = [*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")]
    output("twine", "check", "--strict", *files)
    return f"twine finds no fault in {', '.join(file.name for file in files)}"


CHECKS = (
    version,
    home,
    links,
    workflows,
    crates,
    other_systems,
    sdist,
    wheel,
    wheel_for_aarch64,
    wheel_in_qemu,
    descriptions,
)


def main() -> None:
    checks = {check.__name__: check for check in CHECKS}
    if unknown := set(sys.argv[1:]) - checks.keys():
        sys.exit(f"no such check: {', '.join(sorted(unknown))}; there are {', '.join(checks)}")
    status = 0
    for name in sys.argv[1:] or checks:
        print(f"{name}: ", end="", flush=True)
        try:
            print("passed:", checks[name]())
        except Skipped as reason:
            print("skipped:", reason)
        except Failed as error:
            print("FAILED:", error)
            status = 1
    sys.exit(status)


if __name__ == "__main__":
    main()
