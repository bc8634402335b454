"""Builds the documentation site into build/site, strictly: a warning or a dead link is an error.

python scripts/docs.py            # `make docs` runs it
python scripts/docs.py --serve    # `make docs-serve`: the site on localhost, built again whenever a page changes

First it makes what the pages show: the reference of the commands, the crates' documentation, the benchmarks, and the
pictures that are missing. A page that shows ``pictures/NAME.jpg`` has code that makes NAME.mp4; the picture is the
frame in its middle. The reference of the commands and these pictures are committed, for readers on a code host, and
tests compare them with new ones. Two kinds of pictures are only on the site: the animation that the README shows, and
those of the gallery's examples.

Links of the README are absolute, because the package index shows it, too. Those of all pages to the project's home
(``project.urls`` in pyproject.toml) are checked as links to the files of this repository and of the site.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

import click
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
COMMANDS = DOCS / "reference" / "cli.md"
PICTURES = DOCS / "pictures"
GALLERY = DOCS / "gallery.md"
EXAMPLE_PICTURES = ROOT / "build" / "gallery"
SITE = ROOT / "build" / "site"
HOME = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
_COLOR = re.compile(r"\x1b\[[\d;]*m")
# What Zensical says when all is well.
_NO_NEWS = re.compile(r"Build (?:started|finished in .*)|No issues found|\s*")
_HEADING = re.compile("h[1-6]")
# Where the gallery shows an example's picture, on the site only.
_EXAMPLE = re.compile(r"<!-- example: (\w+) -->")
# A link that only the site has, to the reference of a name.
_SITE_LINK = re.compile(r"\]\[(penstock\.[\w.]+)\]")


def commands_page() -> str:
    """The page with the help of each command."""
    from penstock.cli import penstock_command

    # As wide as in a terminal of 80 columns.
    settings = penstock_command.context_settings | {"terminal_width": 78}
    group = click.Context(penstock_command, info_name="penstock", **settings)
    contexts = [group]
    for name in penstock_command.list_commands(group):
        command = penstock_command.get_command(group, name)
        assert command is not None
        steps = {f"{name} {step.name}": step for step in getattr(command, "steps", {}).values()}
        contexts += (
            click.Context(each, parent=group, info_name=path)
            for path, each in ({name: command} | steps).items()
        )
    parts = [f"## {each.command_path}\n\n```text\n{each.get_help()}\n```\n" for each in contexts]
    return "\n".join(["# Command line\n", *parts])


def write_crates() -> None:
    """The crates' documentation, without that of the bindings, whose names are Python's."""
    # As `make check` does it last, so that it is there already.
    options = ["--workspace", "--all-features", "--no-deps", "--exclude", "penstock-python"]
    strictly = os.environ | {"RUSTDOCFLAGS": "-D warnings"}
    subprocess.run(["cargo", "doc", "--quiet", *options], cwd=ROOT, env=strictly, check=True)
    made, kept = ROOT / "target" / "doc", DOCS / "rust"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(made, kept, ignore=shutil.ignore_patterns("_native", ".lock"))


def picture_names(page: Path) -> set[str]:
    """The names of the pictures that a page shows, without their ending."""
    return set(re.findall(r"\]\([./]*pictures/([\w-]+)\.jpg\)", page.read_text()))


def write_pictures() -> None:
    """The pictures that are missing, by running the code of their pages."""
    PICTURES.mkdir(exist_ok=True)
    for page in DOCS.rglob("*.md"):
        missing = [name for name in picture_names(page) if not (PICTURES / f"{name}.jpg").exists()]
        # The gallery has no code, and shows pictures of other pages.
        if not missing or page == GALLERY:
            continue
        with TemporaryDirectory() as folder:
            run = [sys.executable, ROOT / "scripts" / "run_page.py", page]
            ran = subprocess.run(run, cwd=folder, capture_output=True, text=True)
            if ran.returncode:
                sys.exit(f"docs: the code of {page} failed:\n{ran.stderr}")
            for name in missing:
                write_middle_frame(Path(folder, f"{name}.mp4"), PICTURES / f"{name}.jpg")


def write_example_pictures() -> None:
    """The pictures of the gallery's examples that are missing, by running the examples that can run here."""
    EXAMPLE_PICTURES.mkdir(parents=True, exist_ok=True)
    for name in _EXAMPLE.findall(GALLERY.read_text()):
        picture = EXAMPLE_PICTURES / f"{name}.jpg"
        if picture.exists():
            continue
        with TemporaryDirectory() as folder:
            video = Path(folder, f"{name}.mp4")
            example = [sys.executable, ROOT / "examples" / f"{name}.py", "--output", video]
            short = ["--size", "640", "360", "--frames", "60"]
            ran = subprocess.run([*example, *short], cwd=folder, capture_output=True, text=True)
            if ran.returncode:  # no OpenGL or no Vulkan, for example
                reason = ran.stderr.strip().rpartition("\n")[2]
                print(f"docs: the gallery has no picture of {name}: {reason}", file=sys.stderr)
            else:
                write_middle_frame(video, picture)


def show_example_pictures() -> None:
    """Puts the pictures of the examples into the gallery of the site."""
    page = SITE / GALLERY.stem / "index.html"
    html = page.read_text()
    for picture in EXAMPLE_PICTURES.glob("*.jpg"):
        shutil.copy(picture, page.parent)
        shown = f'<p><img alt="A frame of the video that the program writes" src="{picture.name}"></p>'
        html = html.replace(f"<!-- example: {picture.stem} -->", shown)
    page.write_text(html)


def write_middle_frame(video: Path, picture: Path) -> None:
    """The frame in the middle of a video, as an image."""
    from penstock import Decoder, probe, write_video

    duration_s = probe(video).duration_s or 0.0
    with Decoder(video, start=duration_s / 2, count=1) as decoder:
        write_video(picture, decoder, fps=25, progress=False)


def write_animation() -> None:
    """The picture at the top of the README."""
    subprocess.run([sys.executable, ROOT / "scripts" / "animation.py"], cwd=ROOT, check=True)


def write_benchmarks() -> None:
    """The page with the kept records as pictures."""
    command = [sys.executable, "-m", "benchmarks.report", "--page", DOCS / "benchmarks.md"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def build_site() -> None:
    """Build the pages; any message is an error."""
    shutil.rmtree(SITE, ignore_errors=True)
    command = [Path(sys.executable).with_name("zensical"), "build", "--strict", "--clean"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = _COLOR.sub("", built.stdout).partition("Traceback")[0].splitlines()
    news = [line for line in said if not _NO_NEWS.fullmatch(line)]
    if built.returncode or news:
        sys.exit("\n".join(["docs: the site has warnings:", *news]))


class Page(HTMLParser):
    """A page of HTML: what it links to or shows, and its anchors."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(html)

    def has(self, anchor: str) -> bool:
        return anchor in self.anchors

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src", "srcset") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


class HostedPage(Page):
    """A page of Markdown as code hosts show it, which make the anchor of a heading of its words."""

    def __init__(self, markdown: str) -> None:
        self.heading: list[str] | None = None
        super().__init__(MarkdownIt("commonmark").enable("table").render(markdown))

    def has(self, anchor: str) -> bool:
        # The site has Python's names; a code host shows the page from its beginning.
        return super().has(anchor) or anchor.startswith("penstock.")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        if _HEADING.fullmatch(tag):
            self.heading = []

    def handle_data(self, data: str) -> None:
        if self.heading is not None:
            self.heading.append(data)

    def handle_endtag(self, tag: str) -> None:
        if self.heading is not None and _HEADING.fullmatch(tag):
            words = "".join(self.heading).lower()
            self.anchors.add(re.sub(r"[^\w -]", "", words).replace(" ", "-"))
            self.heading = None


def dead_links(pages: Mapping[Path, Page], exists: Callable[[Path], bool]) -> list[str]:
    """Links of pages to files or anchors that are not there."""
    dead = []
    for path, page in pages.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = Path(os.path.normpath(path.parent / unquote(url.path))) if url.path else path
            target = target / "index.html" if target / "index.html" in pages else target
            fragment = unquote(url.fragment)
            known = fragment in ("", "__skip") or target not in pages or pages[target].has(fragment)
            if not exists(target) or not known:
                dead.append(f"{path}: {link}")
    return dead


def dead_links_of_site() -> list[str]:
    """Links within the site, and from the committed pages to it, that lead nowhere.

    Zensical checks those between pages, but no pictures and no crates.
    """
    paths = [path for path in SITE.rglob("*.html") if "rust" not in path.relative_to(SITE).parts]
    pages = {path: Page(path.read_text()) for path in paths if path.name != "404.html"}
    pages[SITE / "README.md"] = HostedPage((ROOT / "README.md").read_text())
    for path, page in pages.items():
        page.links = [site_link(link, path) for link in page.links]
    return dead_links(
        pages, lambda target: target in pages or target.is_file() or (target / "index.html").is_file()
    )


def site_link(link: str, page: Path) -> str:
    """A link of a page to the published site, as one to the site here."""
    home = HOME["Documentation"]
    is_home = link.startswith(home)
    return f"{os.path.relpath(SITE, page.parent)}/{link.removeprefix(home)}" if is_home else link


def local_link(link: str, page: Path) -> str:
    """A link of a page to a file at the project's home, as one to the file here."""
    home = re.match(rf"{re.escape(HOME['Source'])}/(?:blob|raw)/main/", link)
    return f"{os.path.relpath(ROOT, page.parent)}/{link[home.end() :]}" if home else link


def dead_links_of_repository() -> list[str]:
    """Links that a reader on a code host cannot follow, because they do not lead to what is committed."""
    # In a container, another user may have cloned.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    files = {ROOT / name for name in listed.split("\0") if (ROOT / name).is_file()}
    folders = {folder for file in files for folder in file.parents}
    pages = {path: HostedPage(path.read_text()) for path in files if path.suffix == ".md"}
    for path in (ROOT / "README.md", *DOCS.glob("*.md")):
        if path in pages:
            pages[path].links += _SITE_LINK.findall(path.read_text())
    for path, page in pages.items():
        page.links = [local_link(link, path) for link in page.links]
    return dead_links(pages, lambda target: target in files or target in folders)


def main() -> None:
    COMMANDS.write_text(commands_page())
    write_crates()
    write_pictures()
    write_animation()
    write_example_pictures()
    write_benchmarks()
    if "--serve" in sys.argv:
        os.chdir(ROOT)
        os.execv(Path(sys.executable).with_name("zensical"), ["zensical", "serve"])
    build_site()
    show_example_pictures()
    if dead := dead_links_of_site() + dead_links_of_repository():
        sys.exit("\n".join(["docs: these links lead nowhere:", *dead]))
    print(f"The site is {SITE.relative_to(ROOT) / 'index.html'}")


if __name__ == "__main__":
    main()
