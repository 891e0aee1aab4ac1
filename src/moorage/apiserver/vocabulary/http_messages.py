"""A request and its response as values: nothing here knows of sockets.

Source  apimachinery, pkg/conversion and pkg/runtime/conversion.go, for what parameters may look like
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moorage.apiserver.vocabulary.statuses import bad_request
from moorage.apiserver.vocabulary.users import User

__all__ = ["HTTPRequest", "Response", "is_true"]


def is_true(parameter: str) -> bool:
    """Return what a parameter says that is given: true for everything but "0" and "false"."""
    return parameter.lower() not in {"0", "false"}


@dataclass(frozen=True, slots=True)
class HTTPRequest:
    """``path`` is as it was sent, percent signs and all; ``media_type`` is that of the body."""

    method: str
    path: str
    query: Mapping[str, str]
    accept: str
    media_type: str
    body: bytes
    user: User
    user_agent: str = ""

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false."""
        return name in self.query and is_true(self.query[name])

    def number(self, name: str) -> int:
        """Return a parameter that is a whole number, 0 where it is not given.

        Raises  ApiError 400 for anything else
        """
        value = self.query.get(name, "")
        digits = value.removeprefix("-").removeprefix("+") if value[1:2].isdigit() else value
        if value and not (digits.isascii() and digits.isdigit()):
            raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax')
        if len(digits) > 19 or not -(2**63) <= int(value or 0) < 2**63:
            raise bad_request(f'strconv.ParseInt: parsing "{value}": value out of range')
        return int(value or 0)

    @property
    def dry_run(self) -> bool:
        return self.query.get("dryRun", "") == "All"

    @property
    def validation(self) -> str:
        """How fields that are unknown or stand twice are met: Ignore, Warn or Strict."""
        return self.query.get("fieldValidation") or "Warn"

    @property
    def looks_closely(self) -> bool:
        return self.validation != "Ignore"


@dataclass(frozen=True, slots=True)
class Response:
    """``content`` is JSON: whole, or, of a list, what yields it part by part."""

    code: int
    content: bytes | Iterable[bytes | memoryview]
    warnings: tuple[str, ...] = ()

    @property
    def body(self) -> bytes:
        """The JSON put together."""
        return self.content if isinstance(self.content, bytes) else b"".join(self.content)
