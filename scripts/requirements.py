"""Prints requirements from pyproject.toml, one a line, for ``pip install -r``.

    python scripts/requirements.py build project test

``build`` is the build system, ``project`` what the package needs, ``extra:NAME`` an extra, any other name a dependency
group. pip knows groups by itself only since version 25.1, and would build the project to learn its requirements.
"""

import sys
import tomllib
from pathlib import Path


def requirements(project: dict, name: str) -> list[str]:
    """What `name` stands for."""
    if name == "build":
        return project["build-system"]["requires"]
    if name == "project":
        return project["project"]["dependencies"]
    if name.startswith("extra:"):
        return project["project"]["optional-dependencies"][name.removeprefix("extra:")]
    return project["dependency-groups"][name]


def main() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    for name in sys.argv[1:]:
        print(*requirements(project, name), sep="\n")


if __name__ == "__main__":
    main()
