"""The fields of kubeconfig entries and their types.

An invalid entry is rejected even if no selected context uses it, as in client-go. The message names the field and the
types, never the value, which may be secret. Fields that are not listed here are ignored. Arguments and environment
variables may be integers, which client-go requires to be quoted.

Source  client-go: tools/clientcmd/api/v1/types.go
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from moorage.errors import InputError

__all__ = ["check_fields"]

_Text = str | None
_Texts = list[str] | None
_TYPE: Final = re.compile(r"Expected `(.*?)(?: \| null)?`, got `(.*?)`")
_PLACE: Final = re.compile(r" - at (?:`key` in )?`\$(.*?)`$")


class _Extension(msgspec.Struct):
    name: _Text = None


class _Cluster(msgspec.Struct, rename="kebab"):
    server: _Text = None
    tls_server_name: _Text = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: _Text = None
    certificate_authority_data: _Text = None
    proxy_url: _Text = None
    extensions: list[_Extension] | None = None


class _Variable(msgspec.Struct):
    name: _Text = None
    value: str | int | None = None


class _Exec(msgspec.Struct, rename="camel"):
    command: _Text = None
    args: list[str | int] | None = None
    env: list[_Variable] | None = None
    api_version: _Text = None
    install_hint: _Text = None
    provide_cluster_info: bool | None = None
    interactive_mode: _Text = None


class _User(msgspec.Struct, rename="kebab"):
    client_certificate: _Text = None
    client_certificate_data: _Text = None
    client_key: _Text = None
    client_key_data: _Text = None
    token: _Text = None
    token_file: _Text = msgspec.field(default=None, name="tokenFile")
    as_: _Text = msgspec.field(default=None, name="as")
    as_uid: _Text = None
    as_groups: _Texts = None
    as_user_extra: dict[str, _Texts] | None = None
    username: _Text = None
    password: _Text = None
    auth_provider: dict[str, Any] | None = None
    exec: _Exec | None = None


class _Context(msgspec.Struct):
    cluster: _Text = None
    user: _Text = None
    namespace: _Text = None


_SHAPES: Final = {"cluster": _Cluster, "user": _User, "context": _Context}


def check_fields(inner: str, data: dict[str, Any], place: str) -> None:
    """Check the field types of an entry. ``inner`` is ``cluster``, ``user`` or ``context``.

    Raises  InputError
    """
    try:
        msgspec.convert(data, _SHAPES[inner])
    except msgspec.ValidationError as error:
        raise InputError(f"{place}{_message(str(error))}") from None


def _message(message: str) -> str:
    where, types = _PLACE.search(message), _TYPE.match(message)
    path = where[1] if where else ""
    return f"{path}: expected {types[1]}, found {types[2]}" if types else f"{path}: {message}"
