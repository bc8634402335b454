"""For the API reference: shows ``__new__`` of the native classes, as their stubs have it, as their constructor."""

from __future__ import annotations

from typing import Any

import griffe


class NativeConstructors(griffe.Extension):
    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        if "__new__" in cls.members and "__init__" not in cls.members:
            constructor = cls.members.pop("__new__")
            constructor.name = "__init__"
            cls.members["__init__"] = constructor
