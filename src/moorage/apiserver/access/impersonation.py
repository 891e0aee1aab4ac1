"""User impersonation: the ``Impersonate-`` headers that ``kubectl --as`` sends.

Source  apiserver, pkg/endpoints/filters/impersonation
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import unquote

from moorage.apiserver.access.rbac_authorizer import Authorizer
from moorage.apiserver.access.rbac_rules import Attributes
from moorage.apiserver.access.service_account_tokens import account_groups
from moorage.apiserver.vocabulary.statuses import bad_request, quoted
from moorage.apiserver.vocabulary.users import AUTHENTICATED, User

__all__ = ["impersonated"]

_USER, _GROUP, _UID = "impersonate-user", "impersonate-group", "impersonate-uid"
_EXTRA: Final = "impersonate-extra-"
_AUTHENTICATION: Final = "authentication.k8s.io"
_ANONYMOUS: Final = "system:anonymous"


def impersonated(user: User, headers: Iterable[tuple[str, str]], authorizer: Authorizer) -> User:
    """Return the impersonated user, or ``user`` if there are no impersonation headers.

    Raises  ApiError 403 for a user, group, uid or extra that this user may not impersonate; 400 if the headers do not name
            a user
    """
    requested = [(name.lower(), value) for name, value in headers if name.lower().startswith("impersonate-")]
    if not requested:
        return user
    name, uid = _last(requested, _USER), _last(requested, _UID)
    groups = tuple(value for key, value in requested if key == _GROUP)
    extra: dict[str, tuple[str, ...]] = {}
    for key, value in requested:
        if key.startswith(_EXTRA):
            field = unquote(key.removeprefix(_EXTRA))
            extra[field] = (*extra.get(field, ()), value)
    if not name:
        raise bad_request(f"requested {_shown(uid, groups, extra)} without impersonating a user name")
    for attributes in _needed(name, groups, uid, extra):
        authorizer.check(user, attributes)
    groups = groups or account_groups(name)
    if name != _ANONYMOUS and AUTHENTICATED not in groups and "system:unauthenticated" not in groups:
        groups = (*groups, AUTHENTICATED)
    elif name == _ANONYMOUS and not groups:
        groups = ("system:unauthenticated",)
    return User(name, groups, uid, extra)


def _shown(uid: str, groups: tuple[str, ...], extra: dict[str, tuple[str, ...]]) -> str:
    """Return the requested identity the way Go formats it."""
    fields = ", ".join(f"{quoted(key)}:{_strings(extra[key])}" for key in sorted(extra))
    shown = f"map[string][]string{{{fields}}}" if extra else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:{quoted(uid)}, Groups:{_strings(groups)}, Extra:{shown}}}'


def _strings(texts: tuple[str, ...]) -> str:
    return f"[]string{{{', '.join(map(quoted, texts))}}}" if texts else "[]string(nil)"


def _last(requested: list[tuple[str, str]], wanted: str) -> str:
    return next((value for key, value in reversed(requested) if key == wanted), "")


def _needed(name: str, groups: tuple[str, ...], uid: str, extra: dict[str, tuple[str, ...]]) -> Iterator[Attributes]:
    """Yield the rights that the user needs to impersonate this identity."""
    if account_groups(name):
        _, _, home, account = name.split(":", 3)
        yield Attributes("impersonate", "", "serviceaccounts", name=account, namespace=home)
    else:
        yield Attributes("impersonate", "", "users", name=name)
    for group in groups:
        yield Attributes("impersonate", "", "groups", name=group)
    for key, values in extra.items():
        for value in values:
            yield Attributes("impersonate", _AUTHENTICATION, "userextras", key, value)
    if uid:
        yield Attributes("impersonate", _AUTHENTICATION, "uids", name=uid)
