"""``scripts/setup`` refuses a Rust that is missing or too old before it installs or compiles anything."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts import licenses

ROOT = Path(__file__).parents[2]
CARGO = "cargo {} (873a06493 2025-05-10)"
RUSTC = "rustc {} (6b00bc388 2025-06-23) (built from a source tarball)"


class Machine:
    """A copy of the setup, and a PATH with a few small tools, but no C compiler."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in ("sh", "cat", "dirname", "grep", "head", "id", "mktemp", "rm", "sort"):
            found = shutil.which(tool)
            assert found is not None
            (self.bin / tool).symlink_to(found)
        (folder / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/setup", folder / "scripts/setup")

    def add(self, name: str, *lines: str) -> None:
        """A program of these lines of shell."""
        path = self.bin / name
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        path.chmod(0o755)

    def add_rust(self, cargo: str, rustc: str) -> None:
        self.add("cargo", f"echo '{CARGO.format(cargo)}'")
        self.add("rustc", f"echo '{RUSTC.format(rustc)}'")

    def add_apt(self) -> None:
        """An apt-get that leaves a trace, to show whether it was asked for anything."""
        self.add("apt-get", f": >'{self.folder}/apt-was-asked'")

    def set_up(self) -> str:
        """What the setup says, which must fail."""
        command = [self.folder / "scripts/setup", "check"]
        done = subprocess.run(
            command, env={"PATH": str(self.bin)}, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        return done.stderr

    @property
    def untouched(self) -> bool:
        return sorted(path.name for path in self.folder.iterdir()) == ["bin", "scripts"]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_rust_version_matches_the_crates() -> None:
    package = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    assert re.findall(r"^rust=(\S+)", (ROOT / "scripts/setup").read_text(), re.MULTILINE) == [
        package["rust-version"]
    ]


@pytest.mark.parametrize(
    ("cargo", "rustc", "old"),
    [
        ("1.85.1", "1.85.1", "cargo is 1.85.1"),
        ("1.88.0", "1.85.1", "rustc is 1.85.1"),
        ("1.87.0-beta.2", "1.88.0", "cargo is 1.87.0-beta.2"),
        ("1.9.0", "1.9.0", "cargo is 1.9.0"),
    ],
)
def test_an_older_rust_is_refused_before_anything_is_installed(
    cargo: str, rustc: str, old: str, machine: Machine
) -> None:
    machine.add_rust(cargo, rustc)
    machine.add_apt()
    said = machine.set_up()
    assert f"{machine.bin}/{old}. Penstock needs Rust 1.88 or later" in said
    assert "rustup default stable" in said
    assert machine.untouched


@pytest.mark.parametrize("missing", ["cargo", "rustc"])
def test_missing_tool_is_reported(missing: str, machine: Machine) -> None:
    machine.add_rust("1.88.0", "1.88.0")
    (machine.bin / missing).unlink()
    machine.add_apt()
    assert f"{missing} is missing. Penstock needs Rust 1.88 or later" in machine.set_up()
    assert machine.untouched


def test_rustup_without_a_toolchain_is_reported(machine: Machine) -> None:
    machine.add("cargo", "echo 'error: rustup could not choose a version of cargo to run' >&2", "exit 1")
    machine.add("rustc")
    machine.add_apt()
    said = machine.set_up()
    assert "could not choose a version" in said
    assert "cargo does not run. Penstock needs Rust 1.88 or later" in said
    assert machine.untouched


@pytest.mark.parametrize("version", ["1.88.0", "1.100.0-nightly", "2.0.0"])
def test_newer_rust_is_accepted(version: str, machine: Machine) -> None:
    machine.add_rust(version, version)
    # The next thing that is missing.
    assert "Rust cannot link without a C compiler" in machine.set_up()


@pytest.mark.skipif(shutil.which("cargo") is None, reason="there is no cargo")
def test_the_wheel_has_the_licenses_of_crates_and_of_the_c_sources_in_them(tmp_path: Path) -> None:
    target = tmp_path / "licenses/all.txt"
    subprocess.run([sys.executable, ROOT / "scripts/licenses.py", target], cwd=ROOT, check=True, timeout=250)
    text = target.read_text()
    for part in (
        ": libdeflate/COPYING",
        ": zstd/LICENSE",
        "zlib-rs v",
        "lz4_flex v",
        "pyo3 v",
        "Eric Biggers",
    ):
        assert part in text
    # What runs in the compiler only is not in the wheel.
    assert "syn v" not in text


def test_license_with_further_conditions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(licenses, "linked_crates", lambda: [("copied v1.0.0", "MIT AND GPL-3.0", tmp_path)])
    monkeypatch.setattr("sys.argv", ["licenses", str(tmp_path / "all.txt")])
    with pytest.raises(SystemExit, match="GPL"):
        licenses.main()
