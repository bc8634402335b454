"""The user's code, a scene or a function, on its way to a worker."""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.util
import inspect
import io
import re
import sys
import types
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle

# The number that cloudpickle draws for a class of the user's, a string of 32 characters.
_CLASS_ID = re.compile(rb"\x8c\x20[0-9a-f]{32}")

_PLAIN = (str, bytes, bool, int, float, complex, types.NoneType, types.EllipsisType)


@dataclass(frozen=True, slots=True)
class Code:
    """A callable, or a class of callables, in cloudpickle's form.

    Attributes:
        name: what messages call it.
        pickled: its pickle, in base64.
        digest: SHA-256 of what it does, and of the source file of its module if the pickle only names that.
    """

    name: str
    pickled: str
    digest: str

    @classmethod
    def of(cls, code: Callable[..., object] | str) -> Code:
        """`code`, or what ``MODULE:NAME`` or ``FILE.py:NAME`` names.

        Raises:
            ImportError, AttributeError: there is no such module, or it has no such name.
            TypeError: it cannot be called, or not be pickled.
        """
        if isinstance(code, str):
            code = _imported(code)
        if not callable(code):
            raise TypeError(f"a scene is a function or a class; got {code!r}")
        name = getattr(code, "__qualname__", type(code).__qualname__)
        try:
            pickled = cloudpickle.dumps(code)
        except Exception as error:
            raise TypeError(
                f"{name} cannot be sent to workers: {error}; make in the scene's class what it needs"
            ) from error
        return cls(name, base64.b64encode(pickled).decode(), _digest(code))

    def load(self) -> Any:
        """The callable; of a class, an instance of it."""
        code = cloudpickle.loads(base64.b64decode(self.pickled))
        return code() if inspect.isclass(code) else code


class _Contents(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what code does, and not where it stands: the same in every process. It cannot be loaded."""

    dispatch_table: ClassVar[ChainMap[type, Any]] = ChainMap(
        {types.CodeType: lambda code: (tuple, _contents(code))}, cloudpickle.Pickler.dispatch_table
    )

    def persistent_id(self, value: object) -> str | None:
        """Text that stands for a set, whose order would be another one in each process."""
        return _text(value) if type(value) in (set, frozenset) else None


def _text(value: object) -> str | None:
    """A value that is made of sets, tuples, text and numbers, as text with sorted sets; None for any other."""
    kind = type(value)
    if kind in _PLAIN:
        return f"{kind.__name__}({value!r})"
    if not isinstance(value, tuple | set | frozenset):
        return None
    parts = [part for one in value if (part := _text(one)) is not None]
    if len(parts) < len(value):
        return None
    return f"{kind.__name__}({', '.join(parts if isinstance(value, tuple) else sorted(parts))})"


def _contents(code: types.CodeType) -> tuple[object, ...]:
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_name, code.co_flags, code.co_code, code.co_exceptiontable, code.co_consts, names


def _digest(code: object) -> str:
    """SHA-256 of the code and its values, and of the source file of a module that its pickle only names."""
    contents = io.BytesIO()
    _Contents(contents).dump(code)
    digest = hashlib.sha256(_CLASS_ID.sub(b"", contents.getvalue()))
    module = inspect.getmodule(code)
    path = getattr(module, "__file__", None)
    by_value = ("__main__", *cloudpickle.list_registry_pickle_by_value())
    if module is not None and path is not None and module.__name__ not in by_value:
        digest.update(Path(path).read_bytes())
    return digest.hexdigest()


def _imported(reference: str) -> Any:
    module_name, colon, name = reference.rpartition(":")
    if not colon or not module_name or not name:
        raise ValueError(f"{reference!r} is not MODULE:NAME or FILE.py:NAME")
    module = _from_file(Path(module_name)) if module_name.endswith(".py") else _named(module_name)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    return found


def search_here() -> None:
    """Has Python find modules in the current folder, too."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def _named(name: str) -> types.ModuleType:
    search_here()
    return importlib.import_module(name)


def _from_file(path: Path) -> types.ModuleType:
    """The module in a file. It is pickled by value, because workers may not have the file."""
    if not path.is_file():
        raise FileNotFoundError(2, "there is no such file", str(path))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.parent.absolute()))
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module
