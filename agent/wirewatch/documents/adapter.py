"""Pydantic's TypeAdapter, made when it is first used: most commands that print a document need none."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import TypeAdapter
else:

    class TypeAdapter:
        """Stands for the adapter of a type until a value is read or written by it."""

        def __init__(self, kind: Any) -> None:
            self._kind = kind

        def __class_getitem__(cls, _kind: Any) -> type:
            return cls

        @cached_property
        def _made(self) -> Any:
            import pydantic

            return pydantic.TypeAdapter(self._kind)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._made, name)


__all__ = ["TypeAdapter"]
