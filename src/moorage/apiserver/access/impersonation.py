"""User impersonation: the ``Impersonate-`` headers that ``kubectl --as`` sends.

A user needs the right to ``impersonate`` another user, or two rights that are limited to a mode: to impersonate the user in
this mode (``impersonate:user-info``), and to make this request in it (``impersonate-on:user-info:list``).

Source  apiserver, pkg/endpoints/filters/impersonation
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final
from urllib.parse import unquote

from moorage.apiserver.access.rbac_authorizer import Authorizer, denied
from moorage.apiserver.access.rbac_rules import Attributes
from moorage.apiserver.access.service_account_tokens import account_groups
from moorage.apiserver.vocabulary.statuses import ApiError, bad_request, quoted
from moorage.apiserver.vocabulary.users import AUTHENTICATED, MASTERS, User

__all__ = ["impersonated"]

_USER, _GROUP, _UID = "impersonate-user", "impersonate-group", "impersonate-uid"
_EXTRA: Final = "impersonate-extra-"
_AUTHENTICATION: Final = "authentication.k8s.io"
_ANONYMOUS: Final = "system:anonymous"


def impersonated(
    user: User,
    headers: Iterable[tuple[str, str]],
    authorizer: Authorizer,
    attributes: Callable[[], Attributes] | None = None,
) -> User:
    """Return the impersonated user, or ``user`` if there are no impersonation headers.

    ``attributes`` returns those of the request; without it, only the right to ``impersonate`` counts.

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
    wanted = User(name, groups, uid, extra)
    mode, refusal = _constrained(user, wanted, authorizer, attributes) if attributes is not None else ("", None)
    if not mode:
        try:
            for needed in _needed(name, groups, uid, extra):
                authorizer.check(user, needed)
        except ApiError as error:
            raise (refusal or error) from None
    groups = groups or account_groups(name) or ((_NODES,) if mode == _NODE_MODE else ())
    if name != _ANONYMOUS and AUTHENTICATED not in groups and "system:unauthenticated" not in groups:
        groups = (*groups, AUTHENTICATED)
    elif name == _ANONYMOUS and not groups:
        groups = ("system:unauthenticated",)
    return User(name, groups, uid, extra)


# -- modes -------------------------------------------------------------------------------------------------------------

_NODES: Final = "system:nodes"
_NODE: Final = "system:node:"
_NODE_MODE: Final = "arbitrary-node"
#: From how many groups or values on the right to all of them is checked first.
_MANY: Final = 4


def _constrained(
    user: User, wanted: User, authorizer: Authorizer, attributes: Callable[[], Attributes]
) -> tuple[str, ApiError | None]:
    """Return the mode in which a user may impersonate another for a request, or "" and why not."""
    mode = _mode_of(wanted)
    if not mode:
        return "", None
    asked = attributes()
    try:
        authorizer.check(user, asked._replace(verb=f"impersonate-on:{mode}:{asked.verb}"))
        _check_fields(user, wanted, f"impersonate:{mode}", authorizer)
    except ApiError as error:
        return "", error
    return mode, None


def _mode_of(wanted: User) -> str:
    """Return the mode that a user belongs to; "" for a node or service account with more than a name."""
    is_node, is_account = len(wanted.name) > len(_NODE) and wanted.name.startswith(_NODE), bool(account_groups(wanted.name))
    if not is_node and not is_account:
        return "user-info"
    if wanted.groups or wanted.uid or wanted.extra:
        return ""
    return _NODE_MODE if is_node else "serviceaccount"


def _check_fields(user: User, wanted: User, verb: str, authorizer: Authorizer) -> None:
    of = partial(Attributes, verb, _AUTHENTICATION)
    if account_groups(wanted.name):
        _, _, home, account = wanted.name.split(":", 3)
        authorizer.check(user, of("serviceaccounts", name=account, namespace=home))
    elif wanted.name.startswith(_NODE):
        authorizer.check(user, of("nodes", name=wanted.name.removeprefix(_NODE)))
    else:
        authorizer.check(user, of("users", name=wanted.name))
    if wanted.uid:
        authorizer.check(user, of("uids", name=wanted.uid))
    if "" in wanted.groups:
        raise denied(user, of("groups"), "impersonating the empty string group is not allowed")
    if MASTERS in wanted.groups:
        raise denied(user, of("groups", name=MASTERS), f"impersonating the {MASTERS} group is not allowed")
    if len(wanted.groups) < _MANY or not authorizer.judge(user, of("groups", name="*")).allowed:
        for group in wanted.groups:
            authorizer.check(user, of("groups", name=group))
    values = [(key, value) for key, held in wanted.extra.items() for value in held]
    if any(not value for _, value in values):
        raise denied(user, of("userextras"), "impersonating the empty string value in extra is not allowed")
    if len(values) < _MANY or not authorizer.judge(user, of("userextras", "*", "*")).allowed:
        for key, value in values:
            authorizer.check(user, of("userextras", key, value))


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
