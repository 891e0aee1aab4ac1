"""Users: a name, groups, a uid and extra fields from the authenticator.

Source  apiserver, pkg/authentication/user/user.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["AUTHENTICATED", "MASTERS", "User", "authenticated"]

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
