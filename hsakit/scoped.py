"""``with`` for what has a ``close``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self  # of mypy's; Python 3.10 has none


class Scoped:
    """It is closed at the end of its ``with``, whatever happened there."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def close(self) -> None:
        """Give back what it has."""
        raise NotImplementedError
