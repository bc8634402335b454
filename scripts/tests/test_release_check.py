"""``make release-check`` runs all of its checks, whatever becomes of the others, and fails if one of them does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts import release_check
from scripts.release_check import Failed, Skipped


def bad() -> str:
    raise Failed("a link leads nowhere")


def impossible() -> str:
    raise Skipped("qemu-aarch64 is missing: apt-get install qemu-user")


def good() -> str:
    return "all is well"


@pytest.mark.parametrize(
    ("chosen", "verdicts", "status"),
    [
        ([], ["bad: FAILED", "impossible: skipped", "good: passed"], 1),
        (["good", "impossible"], ["good: passed", "impossible: skipped"], 0),
    ],
)
def test_every_check_prints_a_line(
    chosen: list[str],
    verdicts: list[str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(release_check, "CHECKS", (bad, impossible, good))
    monkeypatch.setattr("sys.argv", ["release_check", *chosen])
    with pytest.raises(SystemExit) as end:
        release_check.main()
    assert end.value.code == status
    lines = capsys.readouterr().out.splitlines()
    assert [": ".join(line.split(": ")[:2]) for line in lines] == verdicts


def test_a_check_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["release_check", "link"])
    with pytest.raises(SystemExit, match="links"):
        release_check.main()


def test_failed_program_is_shown_with_its_output() -> None:
    with pytest.raises(Failed, match="why"):
        release_check.output("sh", "-c", "echo why; exit 3")


PROJECT = """[project]
authors = [{{ name = "{author}" }}]
[project.urls]
Source = "https://github.com/{owner}/penstock"
"""
WORKSPACE = """[workspace.package]
authors = ["Ada"]
repository = "https://github.com/ada/penstock"
"""


@pytest.mark.parametrize(
    ("author", "owner", "link", "fault"),
    [
        ("Ada", "ada", "https://github.com/ada/penstock", None),
        (
            "Ada",
            "ada",
            "https://github.com/OWNER/penstock",
            "OWNER must be the owner of the project's home in README.md",
        ),
        ("Grace", "ada", "", "Cargo.toml and pyproject.toml must name the same authors"),
        (
            "Ada",
            "grace",
            "",
            "Cargo.toml has https://github.com/ada/penstock, and pyproject.toml https://github.com/grace",
        ),
    ],
)
def test_a_release_names_its_home_and_no_placeholder(
    author: str, owner: str, link: str, fault: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "pyproject.toml": PROJECT.format(author=author, owner=owner),
        "Cargo.toml": WORKSPACE,
        "README.md": f"[the source]({link}), in NOWONERS, and a NEW_OWNER",
        "RELEASING.md": "OWNER stands for the home",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for command in (["init"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.setattr(release_check, "ROOT", tmp_path)
    if fault is None:
        assert release_check.home() == "the home is https://github.com/ada/penstock"
    else:
        with pytest.raises(Failed) as failed:
            release_check.home()
        assert fault in str(failed.value)


def test_the_home_of_this_repository_is_the_same_everywhere() -> None:
    """That may be the placeholder."""
    try:
        release_check.home()
    except Failed as error:
        assert str(error).startswith("OWNER must be")


@pytest.mark.parametrize(
    ("heading", "tags", "fault"),
    [
        ("0.2.0 (unreleased)", [], None),
        ("0.2.0", ["v0.2.0"], None),
        ("0.1.0", [], "begins with 0.1.0, and Cargo.toml has 0.2.0"),
        ("0.2.0", ["v0.1.0"], "the tag is v0.1.0"),
        ("0.2.0", ["v0.1.0", "v0.2.0"], "the tag is v0.1.0 v0.2.0"),
        ("0.2.0 (unreleased)", ["v0.2.0"], "begins with 0.2.0 (unreleased), and the tag is v0.2.0"),
    ],
)
def test_version_matches_the_changelog_and_the_tag(
    heading: str, tags: list[str], fault: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Cargo.toml").write_text('[workspace.package]\nversion = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n\n## 0.0.1\n")
    git = ("git", "-c", "user.name=Test", "-c", "user.email=test@example.com")
    for command in (["init"], ["commit", "--allow-empty", "-m", "one"], *(["tag", tag] for tag in tags)):
        subprocess.run([*git, *command], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.setattr(release_check, "ROOT", tmp_path)
    if fault is None:
        assert release_check.version().startswith(f"Cargo.toml and CHANGELOG.md have {heading}; ")
    else:
        with pytest.raises(Failed) as failed:
            release_check.version()
        assert fault in str(failed.value)
