"""The user's code, a scene or a function, on its way to a worker."""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib
import importlib.util
import inspect
import io
import sys
import sysconfig
import types
from collections import ChainMap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle

# Where modules are that are not the user's: Python's own, installed packages, and this one.
_FOREIGN = (
    Path(__file__).resolve().parents[1],
    *(Path(sysconfig.get_paths()[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)

_PLAIN = (str, bytes, bool, int, float, complex, types.NoneType, types.EllipsisType)


@dataclass(frozen=True, slots=True)
class Code:
    """A callable, or a class of callables, in cloudpickle's form.

    Attributes:
        name: what messages call it.
        pickled: its pickle, in base64.
        digest: SHA-256 of what it does, and of the files of the user's own modules that it comes from or uses, and that
            these use. What a function imports when it is called is not seen.
    """

    name: str
    pickled: str
    digest: str

    @classmethod
    def of(cls, code: Callable[..., object] | str, version: str | None, *arguments: str) -> Code:
        """`code`, or what ``MODULE:NAME`` or ``FILE.py:NAME`` names. A `version` is all that the digest is of.

        Raises:
            ImportError, AttributeError: there is no such module, or it has no such name.
            TypeError: it can't be called with `arguments`, or can't be pickled.
        """
        if isinstance(code, str):
            code = _imported(code)
        if not callable(code):
            raise TypeError(f"a scene must be a function or a class, not {code!r}")
        name = getattr(code, "__qualname__", type(code).__qualname__)
        _check_takes(code, name, arguments)
        try:
            _PicklerWithPaths(pickled := io.BytesIO()).dump(code)
        except Exception as error:
            raise TypeError(
                f"{name} can't be sent to workers: {error}. Create what it needs in the __init__ of a scene class"
            ) from error
        if not isinstance(version, str | None):
            raise TypeError(f"version must be a str or None, not {version!r}")
        digest = _digest(code) if version is None else hashlib.sha256(version.encode()).hexdigest()
        return cls(name, base64.b64encode(pickled.getvalue()).decode(), digest)

    def load(self) -> Any:
        """The callable; of a class, an instance of it."""
        code = cloudpickle.loads(base64.b64decode(self.pickled))
        return code() if inspect.isclass(code) else code


def _check_takes(code: Callable[..., object], name: str, arguments: Sequence[str]) -> None:
    """Checks that a function, or the instances of a class, can be called with so many arguments."""
    called, own = (code.__call__, ["self"]) if inspect.isclass(code) else (code, [])
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # it is written in C, and tells none
        return
    try:
        signature.bind(*own, *arguments)
    except TypeError:
        raise TypeError(f"{name} must take ({', '.join(arguments)}), not {signature}") from None


def _with_file(path: str, make: Callable[..., types.CodeType], *arguments: object) -> types.CodeType:
    return make(*arguments).replace(co_filename=path)


def _reduce_code(code: types.CodeType) -> tuple[object, ...]:
    make, arguments = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return _with_file, (code.co_filename, make, *arguments)


class _PicklerWithPaths(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles code with the path of its file, for tracebacks: cloudpickle 3.1.3 leaves that out."""

    dispatch_table: ClassVar[ChainMap[type, Any]] = ChainMap(
        {types.CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table
    )


class _DigestPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles code without files and line numbers, so that the bytes are equal in every process. For the digest only.

    Attributes:
        modules: the modules that the pickle names, or whose functions and classes it names.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.modules: set[types.ModuleType] = set()

    dispatch_table: ClassVar[ChainMap[type, Any]] = ChainMap(
        {types.CodeType: lambda code: (tuple, _code_contents(code))}, cloudpickle.Pickler.dispatch_table
    )

    def persistent_id(self, value: object) -> str | None:
        """Notes the value's module. Returns sorted text for a set, whose order differs between processes."""
        self.modules |= _modules_of([value])
        return _set_as_text(value) if type(value) in (set, frozenset) else None

    def reducer_override(self, value: object) -> Any:
        """Leaves out a class's random id from cloudpickle, and its line number, which Python 3.13 stores."""
        reduced = super().reducer_override(value)
        if not isinstance(value, type) or not isinstance(reduced, tuple):
            return reduced
        number = cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(value)
        made, arguments, *others = reduced
        for attributes, _ in others[:1]:
            attributes.pop("__firstlineno__", None)
        return (
            made,
            tuple(None if isinstance(one, str) and one == number else one for one in arguments),
            *others,
        )


def _modules_of(values: Iterable[object]) -> set[types.ModuleType]:
    """The modules among the values, and those of the functions and classes among them."""
    named = (types.FunctionType, types.BuiltinFunctionType, type)
    # Not isinstance, which asks a proxy for the class of what it stands for.
    found = (sys.modules.get(str(one.__module__)) if issubclass(type(one), named) else one for one in values)
    return {one for one in found if issubclass(type(one), types.ModuleType)}  # type: ignore[misc]


def _own_files(modules: set[types.ModuleType]) -> dict[str, Path]:
    """The files of the modules that are the user's, and of those that they use, by the modules' names."""
    files: dict[str, Path] = {}
    left = list(modules)
    while left:
        module = left.pop()
        if not (file := getattr(module, "__file__", None)) or module.__name__ in files:
            continue
        path = Path(file).resolve()
        if not any(path.is_relative_to(folder) for folder in _FOREIGN):
            files[module.__name__] = path
            left += _modules_of(vars(module).copy().values()) | _imported_by(module, path)
    return files


def _imported_by(module: types.ModuleType, path: Path) -> set[types.ModuleType]:
    """The modules in a module's import statements. After ``from x import CONSTANT``, no value of it refers to ``x``."""
    if path.suffix != ".py":
        return set()
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(base, module.__package__ or "") if node.level else base
            names |= {base, *(f"{base}.{one.name}" for one in node.names)}
    return {sys.modules[name] for name in names if name in sys.modules}


def _set_as_text(value: object) -> str | None:
    """A value that is made of sets, tuples, text and numbers, as text with sorted sets; None for any other."""
    kind = type(value)
    if kind in _PLAIN:
        return f"{kind.__name__}({value!r})"
    if not isinstance(value, tuple | set | frozenset):
        return None
    parts = [part for one in value if (part := _set_as_text(one)) is not None]
    if len(parts) < len(value):
        return None
    return f"{kind.__name__}({', '.join(parts if isinstance(value, tuple) else sorted(parts))})"


def _code_contents(code: types.CodeType) -> tuple[object, ...]:
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_name, code.co_flags, code.co_code, code.co_exceptiontable, code.co_consts, names


def _digest(code: object) -> str:
    """SHA-256 of the code and its values, and of the files of the user's modules that it needs."""
    contents = _DigestPickler(pickled := io.BytesIO())
    contents.dump(code)
    digest = hashlib.sha256(pickled.getvalue())
    # The pickle itself holds what the code uses of these, and the rest of their files does not matter.
    by_value = ("__main__", *cloudpickle.list_registry_pickle_by_value())
    files = _own_files(contents.modules)
    module = inspect.getmodule(code)
    if module is not None and (file := getattr(module, "__file__", None)) is not None:
        files |= {module.__name__: Path(file)} | _own_files({module})
    for name in sorted(files.keys() - set(by_value)):
        digest.update(files[name].read_bytes())
    return digest.hexdigest()


def _imported(reference: str) -> Any:
    module_name, colon, name = reference.rpartition(":")
    if not colon or not module_name or not name:
        raise ValueError(f"a scene must be MODULE:NAME or FILE.py:NAME, not {reference!r}")
    module = _from_file(Path(module_name)) if module_name.endswith(".py") else _named(module_name)
    return attrgetter(name)(module)


def add_cwd_to_sys_path() -> None:
    """Has Python find modules in the current folder, too."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def _named(name: str) -> types.ModuleType:
    add_cwd_to_sys_path()
    return importlib.import_module(name)


def _from_file(path: Path) -> types.ModuleType:
    """The module in a file. It is pickled by value, because workers may not have the file."""
    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # where `register_pickle_by_value` looks for it
    # As for a script that Python runs: it may import its neighbors.
    sys.path.insert(0, str(path.parent.absolute()))
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module
