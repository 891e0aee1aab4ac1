"""Acting as somebody else, for those who may: the ``Impersonate-`` headers that ``kubectl --as`` sends.

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
    """Return whom a request is made as: its own user where no header says otherwise.

    Raises  ApiError 403 for a user, group, uid or extra that this user may not take on; 400 for headers that name all but a
            user
    """
    asked = [(name.lower(), value) for name, value in headers if name.lower().startswith("impersonate-")]
    if not asked:
        return user
    name, uid = _last(asked, _USER), _last(asked, _UID)
    groups = tuple(value for key, value in asked if key == _GROUP)
    extra: dict[str, tuple[str, ...]] = {}
    for key, value in asked:
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
    """Return what is asked for as Go shows it."""
    fields = ", ".join(f"{quoted(key)}:{_strings(extra[key])}" for key in sorted(extra))
    shown = f"map[string][]string{{{fields}}}" if extra else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:{quoted(uid)}, Groups:{_strings(groups)}, Extra:{shown}}}'


def _strings(texts: tuple[str, ...]) -> str:
    return f"[]string{{{', '.join(map(quoted, texts))}}}" if texts else "[]string(nil)"


def _last(asked: list[tuple[str, str]], wanted: str) -> str:
    return next((value for key, value in reversed(asked) if key == wanted), "")


def _needed(name: str, groups: tuple[str, ...], uid: str, extra: dict[str, tuple[str, ...]]) -> Iterator[Attributes]:
    """Yield everything that the user behind the request must be allowed to impersonate."""
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
