"""HTTP requests and responses as values, independent of the HTTP library.

Source  apimachinery, pkg/conversion and pkg/runtime/conversion.go, for boolean parameters
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from moorage.api.documents.audit_notes import AuditNotes
from moorage.api.documents.statuses import bad_request

# Users: a name, groups, a uid and extra fields from the authenticator.
#
# Source  apiserver, pkg/authentication/user/user.go

#: The group that may do everything, and the group of all authenticated users.
MASTERS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
_NOTHING: Final[Mapping[str, tuple[str, ...]]] = {}


class User(NamedTuple):
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = _NOTHING


def authenticated(user: User) -> User:
    """Return a user as a member of ``system:authenticated``."""
    return user if AUTHENTICATED in user.groups else user._replace(groups=(*user.groups, AUTHENTICATED))


def health_text(path: str, checks: Mapping[str, str | None], excluded: Collection[str], *, verbose: bool) -> tuple[bool, str]:
    """Return whether the checks of a health path pass, and its text, which withholds the reasons of failures.

    ``checks``: why each check fails; "" or None for one that passes

    Source  apiserver, pkg/server/healthz/healthz.go
    """
    lines = [
        f"[+]{name} excluded: ok" if name in excluded else f"[-]{name} failed: reason withheld" if why else f"[+]{name} ok"
        for name, why in checks.items()
    ]
    if unknown := sorted(set(excluded).difference(checks)):
        lines.append("warn: some health checks cannot be excluded: no matches for " + ",".join(f'"{name}"' for name in unknown))
    if any(why for name, why in checks.items() if name not in excluded):
        return False, "\n".join([*lines, f"{path} check failed", ""])
    return True, "\n".join([*lines, f"{path} check passed", ""]) if verbose else "ok"


def is_true(parameter: str) -> bool:
    """Return the value of a boolean parameter that is present: False for "0" and "false" only."""
    return parameter.lower() not in {"0", "false"}


@dataclass(frozen=True, slots=True)
class HTTPRequest:
    """A request. ``path`` is percent-encoded as sent; ``media_type`` is the body's. ``raw_query`` has each parameter as
    often as it was sent, ``query`` once. ``upgrades``: the client asks for another protocol on the connection. ``audit`` gets
    what the audit log records; None if it records nothing.
    """

    method: str
    path: str
    query: Mapping[str, str]
    accept: str
    media_type: str
    body: bytes
    user: User
    user_agent: str = ""
    raw_query: str = ""
    upgrades: bool = False
    audit: AuditNotes | None = None

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
