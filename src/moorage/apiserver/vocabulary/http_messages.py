"""HTTP requests and responses as values, independent of the HTTP library.

Source  apimachinery, pkg/conversion and pkg/runtime/conversion.go, for boolean parameters
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moorage.apiserver.vocabulary.statuses import bad_request
from moorage.apiserver.vocabulary.users import User

__all__ = ["HTTPRequest", "Response", "is_true"]


def is_true(parameter: str) -> bool:
    """Return the value of a boolean parameter that is present: False for "0" and "false" only."""
    return parameter.lower() not in {"0", "false"}


@dataclass(frozen=True, slots=True)
class HTTPRequest:
    """A request. ``path`` is percent-encoded as sent; ``media_type`` is the body's."""

    method: str
    path: str
    query: Mapping[str, str]
    accept: str
    media_type: str
    body: bytes
    user: User
    user_agent: str = ""

    def flag(self, name: str) -> bool:
        """Return a boolean parameter."""
        return name in self.query and is_true(self.query[name])

    def number(self, name: str) -> int:
        """Return an integer parameter, 0 if it is absent.

        Raises  ApiError 400 if it is not an integer
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
        """Field validation: Ignore, Warn or Strict."""
        return self.query.get("fieldValidation") or "Warn"

    @property
    def looks_closely(self) -> bool:
        return self.validation != "Ignore"


@dataclass(frozen=True, slots=True)
class Response:
    """A response. ``content`` is JSON: complete, or an iterable of parts for a list."""

    code: int
    content: bytes | Iterable[bytes | memoryview]
    warnings: tuple[str, ...] = ()

    @property
    def body(self) -> bytes:
        """The complete JSON."""
        return self.content if isinstance(self.content, bytes) else b"".join(self.content)
