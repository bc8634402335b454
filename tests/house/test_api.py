"""Stub, ``__all__`` and runtime agree; names are few, and documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
import tomllib
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import get_overloads

import pytest
from support.clips import clip
from support.processes import run_script, succeeded
from support.stub import FUNCTIONS, STUB

import penstock
from penstock import _native

ROOT = Path(__file__).parents[2]


def public(names: object) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def names_in(body: list[ast.stmt]) -> set[str]:
    names = set()
    for node in body:
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


def at_runtime(path: str) -> object:
    target: object = _native
    for name in path.split("."):
        target = getattr(target, name)
    return target


def test_the_stub_names_what_the_module_has() -> None:
    assert public(names_in(STUB)) == public(vars(_native))


def case(name: str, value: object) -> object:
    """A case of a class or function of the native module, of which Windows lacks some."""
    is_there = not re.match("Tee|_?Relay|_start_relay", name)
    return pytest.param(value, id=name, marks=() if is_there else pytest.mark.linux("Tee and native relays"))


@pytest.mark.parametrize("stub", [case(node.name, node) for node in STUB if isinstance(node, ast.ClassDef)])
def test_the_stubs_classes_have_what_the_modules_have(stub: ast.ClassDef) -> None:
    assert public(names_in(stub.body)) == public(vars(at_runtime(stub.name)))


@pytest.mark.parametrize("path", [case(path, path) for path in sorted(FUNCTIONS) if "__" not in path])
def test_the_stubs_parameters_are_the_modules(path: str) -> None:
    node = FUNCTIONS[path]
    if any(isinstance(item, ast.Name) and item.id == "property" for item in node.decorator_list):
        assert inspect.isdatadescriptor(at_runtime(path))
        return
    parameters = inspect.signature(at_runtime(path)).parameters.values()
    by_position = [item.name for item in parameters if item.kind is not inspect.Parameter.KEYWORD_ONLY]
    by_keyword = [item.name for item in parameters if item.kind is inspect.Parameter.KEYWORD_ONLY]
    assert by_position == [item.arg for item in node.args.args]
    assert by_keyword == [item.arg for item in node.args.kwonlyargs]
    defaults = [item.default for item in parameters if item.default is not inspect.Parameter.empty]
    stubbed = [*node.args.defaults, *(item for item in node.args.kw_defaults if item is not None)]
    assert defaults == [ast.literal_eval(item) for item in stubbed]


def test_dunder_all_lists_the_public_names() -> None:
    assert sorted(penstock.__all__) == penstock.__all__
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    offered = {name for name in public(dir(penstock)) if not inspect.ismodule(getattr(penstock, name))}
    assert offered - {"TYPE_CHECKING"} == public(penstock.__all__)
    # About a dozen names, and the errors and warnings.
    names = {name for name in public(penstock.__all__) if not name.endswith(("Error", "Warning"))}
    assert len(names) <= 20


def test_slow_imports_happen_at_first_use() -> None:
    code = """
        assert "penstock._common.exits" in sys.modules  # for exits and forks
        rooms = ("penstock._decoding", "penstock._encoding", "penstock._facts", "penstock._ffmpeg")
        for heavy in ("asyncio", "logging", "subprocess", *rooms, "penstock.pipeline", "cloudpickle"):
            assert heavy not in sys.modules, heavy
        modules = ("cpu", "errors", "fifo", "pipeline", "pipes", "results", "video")
        assert {*penstock.__all__, *modules} <= {*dir(penstock)}
        for name in (*penstock.__all__, *modules):
            assert getattr(penstock, name) is getattr(penstock, name)
        assert penstock.Encoder is penstock.Encoder
    """
    code = "import sys, penstock\n" + textwrap.dedent(code)
    assert succeeded(subprocess.run([sys.executable, "-c", code], capture_output=True)) == b""


@pytest.mark.parametrize(
    ("name", "heavy"),
    [
        (
            "Encoder",
            ("asyncio", "av", "difflib", "html", "tempfile", "penstock._decoding", "penstock._facts"),
        ),
        ("Decoder", ("asyncio", "difflib", "html", "tempfile", "penstock._encoding")),
    ],
)
def test_a_class_imports_what_every_user_needs(name: str, heavy: tuple[str, ...]) -> None:
    code = f"""
        import numpy
        if {name!r} == "Decoder":
            import av
        before = {{*sys.modules}}
        penstock.{name}
        assert not ({{*sys.modules}} - before) & {{*{heavy}}}
    """
    succeeded(run_script(code))


def test_reading_imports_nothing_slow() -> None:
    code = f"""
        with penstock.Decoder({str(clip("h264"))!r}) as decoder:
            next(decoder), decoder.batch([0, 7])
        assert not {{"numpy.ma", "asyncio"}} & {{*sys.modules}}
    """
    succeeded(run_script(code))


def test_lookup_of_an_unknown_name_imports_nothing_slow() -> None:
    code = """
        assert not hasattr(penstock, "nothing")
        assert not {"av", "numpy", "cloudpickle", "penstock.rendering.api"} & {*sys.modules}
    """
    succeeded(run_script(code))


@pytest.mark.parametrize(
    ("module", "name", "found"),
    [
        (penstock, "Encodr", "Encodr"),
        (penstock, "AudioTrack", "penstock.video.AudioTrack"),
        (penstock, "render_chunk", "penstock.rendering.render_chunk"),
        (penstock.video, "Encoder", "penstock.Encoder"),
    ],
)
def test_unknown_name_raises_and_a_moved_name_says_where_it_is(
    module: ModuleType, name: str, found: str
) -> None:
    with pytest.raises(AttributeError, match=found):
        getattr(module, name)


MODULES = ("penstock", *(f"penstock.{name}" for name in penstock._LAZY_MODULES))


def test_the_list_of_public_modules_is_whole() -> None:
    files = {path.stem for path in (ROOT / "python" / "penstock").glob("[!_]*.py")}
    assert {*penstock._LAZY_MODULES} == (files | {"rendering"}) - {"errors"}  # whose names are the package's


def test_public_name_is_in_only_one_module() -> None:
    homes: dict[str, list[str]] = {}
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            homes.setdefault(name, []).append(module)
    assert {name: of for name, of in homes.items() if len(of) > 1} == {}


def public_parts(module: ModuleType) -> dict[str, object]:
    """The public functions and classes of a module, and the public members and constructors of the classes."""
    found = {name: getattr(module, name) for name in set(module.__all__) - {"__version__"}}
    for part in filter(inspect.isclass, list(found.values())):
        for base in part.__mro__:
            if base.__module__.startswith("penstock"):
                owner = part if base.__name__.startswith("_") else base
                names = public(vars(base)) | (vars(base).keys() & {"__init__"})
                found |= {f"{owner.__name__}.{name}": vars(base)[name] for name in names}
    return found


def types_of(path: str, part: object) -> dict[str, str]:
    """The annotations of a function or property as they are written; for a native one, those of the stub."""
    function = inspect.unwrap(getattr(part, "fget", None) or getattr(part, "__func__", part))
    if inspect.isfunction(function):
        function = (get_overloads(function) or [function])[0]
        signature = inspect.signature(function)
        found = {name: item.annotation for name, item in signature.parameters.items()}
        found["return"] = signature.return_annotation
        return {
            name: "" if item is inspect.Parameter.empty else str(item)
            for name, item in found.items()
            if name not in ("self", "cls")
        }
    if (node := FUNCTIONS.get(path)) is None:
        return {}
    items = [*node.args.args, *node.args.kwonlyargs]
    written = {item.arg: item.annotation for item in items} | {"return": node.returns}
    return {name: ast.unparse(item) if item else "" for name, item in written.items() if name != "self"}


@pytest.mark.parametrize("name", MODULES)
def test_everything_public_is_documented_and_typed(name: str) -> None:
    module = importlib.import_module(name)
    assert inspect.getdoc(module)
    for path, part in public_parts(module).items():
        owner, _, member = path.rpartition(".")
        if inspect.ismemberdescriptor(part) or not (callable(part) or hasattr(part, "__get__")):
            # An attribute has no docstring of its own; the class describes it.
            assert re.search(rf"\b{member}\b.*:", inspect.getdoc(getattr(module, owner, None)) or ""), path
        else:
            assert inspect.getdoc(part) or member == "__init__", path
        for parameter, written in types_of(path, part).items():
            assert written, f"{path}: {parameter}"
            # The elements of an array may have any type.
            assert not re.search(r"\bAny\b", written.replace("NDArray[Any]", "")), f"{path}: {parameter}"


def test_the_package_says_that_it_is_typed() -> None:
    assert (files("penstock") / "py.typed").is_file()


def test_errors_derive_from_the_matching_builtin_errors() -> None:
    assert issubclass(penstock.ClosedError, ValueError)
    assert issubclass(penstock.BrokenStreamError, BrokenPipeError)
    assert issubclass(penstock.StalledError, TimeoutError)
    assert issubclass(penstock.FFmpegError, RuntimeError)
    for ffmpegs in (penstock.EncoderError, penstock.DecoderError):
        assert issubclass(ffmpegs, penstock.FFmpegError)
    for name in penstock.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(penstock, name), penstock.PenstockError)


@pytest.mark.linux("the name of Linux' module")
def test_the_native_module_is_for_every_python_from_3_11() -> None:
    assert _native.__file__ is not None
    assert _native.__file__.endswith(".abi3.so")


def test_pipe_ends_have_a_readable_repr() -> None:
    reader, writer = penstock.pipes.make_pipe()
    with reader, writer:
        assert repr(reader) == f"<penstock.pipes.PipeReader fd={reader.fileno()}>"
    assert repr(writer) == "<penstock.pipes.PipeWriter closed>"


@pytest.mark.linux("FIFOs")
def test_fifo_create_raises_if_the_path_exists(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        penstock.fifo.create(tmp_path)


def test_hints_name_the_distribution_and_extras_that_it_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [ROOT / "README.md", *ROOT.glob("python/**/*.py"), *ROOT.glob("tests/**/*.py")]
    hints = {hint for path in texts for hint in re.findall(r"(penstock[\w-]*)\[(\w+)\]", path.read_text())}
    assert {name for name, _ in hints} == {project["name"]} == {"penstock-io"}
    assert {extra for _, extra in hints} == set(project["optional-dependencies"])


@pytest.mark.linux("scripts of the sources")
def test_the_stub_has_the_docstrings_of_the_native_module() -> None:
    check = [sys.executable, ROOT / "scripts" / "stub_docs.py", "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_two_threads_can_import_the_package_at_once() -> None:
    code = """if True:
    import threading
    parts = "from penstock.video import Colors", "from penstock import probe"
    threads = [threading.Thread(target=exec, args=(part, {})) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    """
    for _ in range(4):
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
        assert done.stderr == b""
