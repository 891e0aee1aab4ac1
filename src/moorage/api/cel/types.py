"""The types of expressions, and when one is assignable to another.

``dyn`` (and ``any``, the type of device attributes) is assignable to and from everything: such an operand is checked again at
run time. Type parameters, written as capital letters, are bound while a call is checked.

Source  cel-go: checker/types.go, checker/format.go, common/types/types.go
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple


class Type(NamedTuple):
    """``kind`` is dyn, any, error, param, null, bool, bytes, double, int, string, uint, list, map, type, opaque or struct."""

    kind: str
    name: str = ""
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if self.kind == "error":
            return "!error!"
        shown = self.name or self.kind
        return f"{shown}({', '.join(map(str, self.params))})" if self.params else shown

    @property
    def is_dyn(self) -> bool:
        return self.kind in {"dyn", "any"}

    @property
    def is_dyn_or_error(self) -> bool:
        return self.kind in {"dyn", "any", "error"}


DYN: Final = Type("dyn")
ANY: Final = Type("any")
ERROR: Final = Type("error")
NULL: Final = Type("null")
BOOL: Final = Type("bool")
BYTES: Final = Type("bytes")
DOUBLE: Final = Type("double")
INT: Final = Type("int")
STRING: Final = Type("string")
UINT: Final = Type("uint")
QUANTITY: Final = Type("struct", "kubernetes.Quantity")
SEMVER: Final = Type("struct", "kubernetes.Semver")
TIMESTAMP: Final = Type("struct", "timestamp")
DURATION: Final = Type("struct", "duration")
#: Types of Kubernetes: how signatures name them, and their names.
_KUBERNETES: Final = {
    "quantity": QUANTITY, "semver": SEMVER, "timestamp": TIMESTAMP, "duration": DURATION,
    "url": Type("struct", "kubernetes.URL"), "ip": Type("struct", "net.IP"), "cidr": Type("struct", "net.CIDR"),
    "format": Type("struct", "kubernetes.NamedFormat"),
    **{name: Type("struct", f"kubernetes.authorization.{named}") for name, named in (
        ("authorizer", "Authorizer"), ("pathcheck", "PathCheck"), ("groupcheck", "GroupCheck"),
        ("resourcecheck", "ResourceCheck"), ("decision", "Decision"),
    )},
}  # fmt: skip

_KINDS: Final = {t.kind: t for t in (DYN, ANY, NULL, BOOL, BYTES, DOUBLE, INT, STRING, UINT)}
_PLAIN: Final = {**_KINDS, **_KUBERNETES}
_WORD = re.compile(r"\s*([A-Za-z]+|[<>,])")


def list_of(element: Type) -> Type:
    """Return the type of lists of ``element``."""
    return Type("list", params=(element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of maps from ``key`` to ``value``."""
    return Type("map", params=(key, value))


def optional_of(value: Type) -> Type:
    """Return the type of optional values."""
    return Type("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    """Return the type of a type that is used as a value."""
    return Type("type", params=(value,))


def unwrap_optional(t: Type) -> tuple[Type, bool]:
    """Return the type inside an optional type and True; any other type itself and False."""
    return (t.params[0], True) if t.kind == "opaque" and t.name == "optional_type" else (t, False)


@lru_cache(maxsize=512)
def typed(text: str) -> Type:
    """Parse a type: ``int``, ``list<A>``, ``map<string, dyn>``, ``optional<V>``; single capitals are parameters."""
    read, at = _typed(text, 0)
    if text[at:].strip():
        raise ValueError(f"{text!r} is no type")
    return read


def _typed(text: str, at: int) -> tuple[Type, int]:
    found = _WORD.match(text, at)
    if found is None:
        raise ValueError(f"{text!r} is no type")
    word, at = found[1], found.end()
    if len(word) == 1:
        return Type("param", word), at
    if word in _PLAIN:
        return _PLAIN[word], at
    params: list[Type] = []
    if text[at : at + 1] == "<":
        while text[at] != ">":
            param, at = _typed(text, at + 1)
            params.append(param)
        at += 1
    return (Type("opaque", "optional_type", tuple(params)) if word == "optional" else Type(word, params=tuple(params))), at


def format_call(args: list[Type], *, member: bool) -> str:
    """Return the operands of a call as messages show them: ``(int, string)`` or ``string.(int)``."""
    target, rest = (f"{args[0]}.", args[1:]) if member else ("", args)
    return f"{target}({', '.join(map(str, rest))})"


class TypeBindings:
    """The bindings of type parameters so far. A failed assignment restores the earlier bindings."""

    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        self._fresh = 0

    def fresh(self) -> Type:
        """Return a new unbound type parameter."""
        self._fresh += 1
        return Type("param", f"_var{self._fresh - 1}")

    def assignable(self, to: tuple[Type, ...], given: tuple[Type, ...]) -> bool:
        """Return whether each of ``to`` is assignable from its counterpart in ``given``; if so, keep the bindings."""
        before = dict(self._bound)
        if len(to) == len(given) and all(map(self._is_assignable, to, given)):
            return True
        self._bound = before
        return False

    def substitute(self, t: Type, *, to_dyn: bool = False) -> Type:
        """Replace bound parameters by their types; with ``to_dyn``, unbound ones by ``dyn``."""
        while t.kind == "param" and t.name in self._bound:
            t = self._bound[t.name]
        if t.kind == "param":
            return DYN if to_dyn else t
        if not t.params:
            return t
        return t._replace(params=tuple([self.substitute(p, to_dyn=to_dyn) for p in t.params]))

    def renamed(self, types: tuple[Type, ...]) -> tuple[Type, ...]:
        """Return the types of a declaration with its parameters replaced by fresh ones."""
        names = sorted({name for t in types for name in _parameters(t)})
        fresh = {name: self.fresh() for name in names}
        return tuple([_renamed(t, fresh) for t in types]) if names else types

    def _is_assignable(self, one: Type, other: Type) -> bool:
        if other.kind == "param":
            valid, bound = self._bind(one, other)
            if valid or bound:
                return valid
        if one.kind == "param":
            return self._bind(other, one)[0]
        if one.is_dyn_or_error or other.is_dyn_or_error:
            return True
        if "null" in {one.kind, other.kind}:
            return one.kind == other.kind or (other if one.kind == "null" else one).kind in {"opaque", "struct"}
        if one.kind in {"opaque", "list", "map"}:
            same = one.kind == other.kind and one.name == other.name and len(one.params) == len(other.params)
            return same and all(map(self._is_assignable, one.params, other.params))
        if one.kind == "type":
            return other.kind == "type"
        return one == other

    def _bind(self, t: Type, param: Type) -> tuple[bool, bool]:
        """Return whether ``param`` can be bound to ``t``, and whether it was bound before."""
        if t == param:
            return True, True
        bound = self._bound.get(param.name)
        if bound is None:
            free = not self._occurs(param, t)
            if free:
                self._bound[param.name] = t
            return free, False
        if t == bound:
            return True, True
        if not self._is_assignable(t, bound):
            return False, True
        wider = most_general(t, bound)
        if not self._occurs(param, wider):
            self._bound[param.name] = wider
        return True, True

    def _occurs(self, param: Type, within: Type) -> bool:
        if within == param:
            return True
        if within.kind == "param":
            bound = self._bound.get(within.name)
            return bound is not None and self._occurs(param, bound)
        return any(self._occurs(param, p) for p in within.params)


def _parameters(t: Type) -> set[str]:
    return {t.name} if t.kind == "param" else {name for p in t.params for name in _parameters(p)}


def _renamed(t: Type, fresh: dict[str, Type]) -> Type:
    if t.kind == "param":
        return fresh[t.name]
    return t._replace(params=tuple([_renamed(p, fresh) for p in t.params])) if t.params else t


def most_general(one: Type, other: Type) -> Type:
    """Return the more general of two assignable types."""
    return one if _is_more_general(one, other) else other


def _is_more_general(one: Type, other: Type) -> bool:
    if one.is_dyn or one.kind == "param":
        return True
    if other.is_dyn or other.kind == "param" or one.kind != other.kind:
        return False
    if one.kind in {"list", "map", "opaque"}:
        return (
            one.name == other.name
            and len(one.params) == len(other.params)
            and all(map(_is_more_general, one.params, other.params))
        )
    return one.kind == "type" or one == other
