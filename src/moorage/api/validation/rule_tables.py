"""Validation by rules that stand in tables: ``rules/*.toml`` of a package, one file for each group of kinds.

A table has the rules of one type, in the order in which kube-apiserver reports their faults. A rule is a list: the field, the
check, its arguments, and last, if it depends on something, its conditions.

    ["port", "range", 1, 65535]                           a check of ``rule_checks`` or of ``patterns.toml``
    ["name", "required", "why"]                           the field is empty; with ``required?``, it is absent
    ["tls", "forbidden", "why", { plain = true }]         its conditions hold; if it has none, the field is not empty
    ["a", "invalid", "why", { "a<" = 0 }]                 likewise; with ``invalid?`` and ``forbidden?``, the field must be set
    ["rules[]", "IngressRule"]                            each item is of the type; a type begins with a capital
    [["min", "max"], "not negative"]                      several fields
    ["", "choice", "none", "more"]                        exactly one field of the table ``choices`` is set, of its type
    ["spec", "fixed"]                                     it is as in the old object; with ``fixed?``, empty is as absent
    ["name", "unique"]                                    in the list that has the object, the field has another value in each

A field is a path; "" is the object itself, ``^`` its holder, ``^^`` the holder of that. In an update, ``^`` is the old object.
Checks are not asked about absent fields and empty texts, unless their name ends in ``!``. Texts may name fields: ``{name}``.
All conditions must hold; their fields are those of the object that the table is about:

    name = true, false         it is not empty, or it is          "name?" = true, false      it is set, or not
    name = VALUE or a list     it equals it, or one of them       "name!" = VALUE or a list  it does not
    "name<" = NUMBER or FIELD  and so ``<=``, ``>``, ``>=``; an absent ``FIELD or 0`` is 0
    "name!=" = FIELD           they differ                        "name==" = VALUE           it equals it and has its type
    "name~" = REGEX            it is found in it                  "name!~" = REGEX           it is not
    "name[]" = VALUE           the list has it                    "name%" = NUMBER, "name%!"  number of pods or percentage

``name#`` is the length of a list. ``@at`` is the field that a fault names if it is another one, below ``..`` in a holder, and
``@value`` what the fault shows: a field, or a text after ``=``. After a fault of a rule with ``@stop`` the next rules of the
object are not asked. With ``@empty`` an absent object counts as an empty one.
"""

from __future__ import annotations

import operator
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from moorage.api.validation.faults import Faults, duplicate, forbidden, invalid, required, unsupported
from moorage.basis import folder_of
from moorage.errors import Bare, Fault

#: What holds an object: the nearest holder, and what holds that.
Holders = tuple[Any, Any] | None
#: What the rules of one run remember: the values of lists that must be unique, by rule and list.
Seen = dict[Any, Any]
#: A check of a value: its path, the value, and the arguments of the rule.
Check = Callable[..., Iterable[Fault]]
_Judge = Callable[[str, Any, Any, Holders, Seen], Iterable[Fault]]
_Rule = Callable[[str, Any, Holders, Seen], Iterable[Fault]]
_Getter = Callable[[Any, Holders], Any]
_Test = Callable[[Any, Holders], bool]

_CHECKS: Final[dict[str, tuple[Check, bool]]] = {}


def check(name: str, *, of_holder: bool = False) -> Callable[[Check], Check]:
    """Register a check. One ``of_holder`` is asked about absent fields too, and called with the path, the value, the object
    that has the field, what holds that, and what the run remembers."""

    def register(function: Check) -> Check:
        _CHECKS[name] = function, of_holder
        return function

    return register


class RuleBook:
    """The tables of a package, for documents, or for the values of ``moorage.api`` if it is ``typed``. Tables of values name
    fields as documents do."""

    def __init__(self, package: str, *, typed: bool = False) -> None:
        self._package = package
        self._field: Callable[[Any, str], Any] = attribute if typed else dict.get
        self._rules: Final = cache(self._read_rules)
        self._tables: Final = cache(self._read_tables)
        self._getter: Final = cache(self._make_getter)

    def faults(self, type_name: str, value: Any, path: str = "", *holders: Any) -> Faults:
        """Yield the faults of an object of a type that has a table, with paths below ``path``.

        ``holders``  what holds the object, the nearest first
        """
        up: Holders = None
        for holder in reversed(holders):
            up = (holder, up)
        return self._run(type_name, path, value, up, {})

    def order(self, type_name: str) -> tuple[str, ...]:
        """Return the fields of a type in the order in which faults name them, from the table ``order``; () if it has none."""
        return tuple(self._tables().get("order", {}).get(type_name, ()))

    def struct(self, place: str) -> str:
        """Return the type in Go of the value at a place, from the table ``structs``; "" if it is not in it."""
        return str(self._tables().get("structs", {}).get(place, ""))

    def has(self, type_name: str) -> bool:
        """Return whether a type has a table."""
        return type_name in self._tables()

    def _read_tables(self) -> Mapping[str, Any]:
        folder = folder_of(self._package) / "rules"
        texts = [one.read_text(encoding="utf-8") for one in sorted(folder.iterdir(), key=lambda one: one.name)]
        return {name: table for text in texts for name, table in tomllib.loads(text).items()}

    def _read_rules(self, type_name: str) -> tuple[tuple[_Rule, str, bool, bool], ...]:
        """Return the rules of a type, each with a field on which it depends, or "", whether it yields nothing without it, or
        with it, and whether a fault of it stops."""
        table = self._tables()[type_name]
        return tuple(one for row in table["rules"] for one in self._compiled(row, table.get("choices", {})))

    def _run(self, type_name: str, path: str, value: Any, up: Holders, seen: Seen) -> Faults:
        read = self._field
        for rule, field, needs_it, stops in self._rules(type_name):
            if field and (read(value, field) is None if needs_it else read(value, field)):
                continue
            found = rule(path, value, up, seen)
            if stops and found:
                yield from (found := [*found])
                if found:
                    return
            elif found:
                yield from found

    def _compiled(self, row: list[Any], choices: Mapping[str, str]) -> Iterator[tuple[_Rule, str, bool, bool]]:
        fields, name, *arguments = row
        options: dict[str, Any] = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
        tests = [self._test(key, wanted) for key, wanted in options.items() if not key.startswith("@")]
        if name == "choice":
            arguments.insert(0, choices)
        for field in fields if isinstance(fields, list) else [fields]:
            changed = [self._test(f"{field}!=", f"^{field}{name[5:]}")] if name.startswith("fixed") else []
            rule = self._rule(field, name, arguments, options, bool(tests or changed))
            is_plain = name == "required" and field.isidentifier()
            needed = field if is_plain else _needed(field, name, options)
            yield _guarded(rule, [*tests, *changed]), needed, not is_plain, bool(options.get("@stop"))

    def _rule(self, field: str, name: str, arguments: list[Any], options: Mapping[str, Any], is_tested: bool) -> _Rule:
        if "[]" in field:
            return self._over_items(field, name, arguments, options)
        get, at = self._getter(field), _place(options.get("@at", field))
        judge = self._judge(field, name, arguments, options, is_tested)
        return lambda path, holder, up, seen: judge(at(path), get(holder, up), holder, up, seen)

    def _over_items(self, field: str, name: str, arguments: list[Any], options: Mapping[str, Any]) -> _Rule:
        """Return a rule for the items of a list or a map, or for a field of the items."""
        place, _, rest = field.partition("[]")
        shown = options.get("@at", f"{place}[]")
        items, at, is_numbered = self._getter(place), _place(shown.removesuffix("[]")), shown.endswith("[]")
        inner = self._rule(rest.removeprefix("."), name, arguments, {}, is_tested=False) if is_numbered else None
        bare = self._rule(rest.removeprefix("."), name, arguments, {"@at": ""}, is_tested=False)

        def over(path: str, holder: Any, up: Holders, seen: Seen) -> Iterable[Fault]:
            listed = items(holder, up)
            if not listed:
                return ()
            start, below = at(path), (holder, up)
            if inner is None:
                return (fault for one in listed for fault in bare(start, one, below, seen))
            pairs = listed.items() if isinstance(listed, Mapping) else enumerate(listed)
            return (fault for key, one in pairs for fault in inner(f"{start}[{key}]", one, below, seen))

        return over

    def _judge(self, field: str, name: str, arguments: list[Any], options: Mapping[str, Any], is_tested: bool) -> _Judge:
        """Return what a rule asks of a value."""
        if name[:1].isupper():
            return self._typed(name, is_empty=bool(options.get("@empty")))
        if name == "choice":
            return self._choice(*arguments)
        if name in {"unique", "unique!"}:
            return _unique(name, *arguments)
        if name.rstrip("?!") in _FAULTS:
            return self._fault(field, name, arguments, options, is_tested)
        function, of_holder = (
            _CHECKS.get(name) or _CHECKS.get(name.removesuffix("!")) or (self._pattern(name.removesuffix("!")), False)
        )
        if of_holder:
            return lambda path, value, holder, up, seen: function(path, value, holder, up, seen, *arguments)
        asks_empty = name.endswith("!")

        def checked(path: str, value: Any, *_: Any) -> Iterable[Fault]:
            if value is None or value == "":
                return function(path, "", *arguments) if asks_empty else ()
            return function(path, value, *arguments)

        return checked

    def _typed(self, name: str, *, is_empty: bool) -> _Judge:
        def typed(path: str, value: Any, holder: Any, up: Holders, seen: Seen) -> Iterable[Fault]:
            if value is None:
                return self._run(name, path, {}, (holder, up), seen) if is_empty else ()
            return self._run(name, path, value, up if value is holder else (holder, up), seen)

        return typed

    def _choice(self, types: Mapping[str, str], none: str, more: str, order: str = "") -> _Judge:
        """Return the rule that exactly one field is set. ``order``: ``first`` reports its faults before those of others.

        A type may have a word before it: the name of its field in faults.
        """

        def choice(path: str, value: Any, _: Any, up: Holders, seen: Seen) -> Faults:
            given = [name for name in types if self._field(value, name) is not None]
            if not given:
                yield required(path, none)
            others = [forbidden(joined(path, name), more) for name in given[1:]]
            yield from () if order else others
            for name in given[:1]:
                shown, _, type_name = types[name].rpartition(" ")
                if type_name:
                    yield from self._run(type_name, joined(path, shown or name), self._field(value, name), (value, up), seen)
            yield from others if order else ()

        return choice

    def _fault(self, field: str, name: str, arguments: list[Any], options: Mapping[str, Any], is_tested: bool) -> _Judge:
        """Return the rule that there is a fault: if a required field is empty, or else if the conditions of the rule hold."""
        make, filled = _FAULTS[name.rstrip("?!")], [self._template(one) for one in arguments]
        shown = (
            self._shown(options["@value"]) if "@value" in options else self._getter(field) if make is _FAULTS["fixed"] else None
        )
        holds: Callable[[Any], bool] = bool
        if name.startswith("required"):
            holds = (lambda value: value is None) if name.endswith("?") else (lambda value: not value)
        elif name.endswith("?"):
            holds = lambda value: value is not None  # noqa: E731
        asks = (name.endswith("?") and name != "fixed?") or (name == "required" and field != "") or not is_tested

        def fault(path: str, value: Any, holder: Any, up: Holders, _: Seen) -> Iterable[Fault]:
            if asks and not holds(value):
                return ()
            seen = shown(holder, up) if shown is not None else "" if value is None else value
            return (make(path, seen, *(one(value, holder, up) for one in filled)),)

        return fault

    def _pattern(self, name: str) -> Check:
        """Return the check of a pattern in the tables: the whole text matches it."""
        row = self._tables()["patterns"][name]
        matches = re.compile(row["is"], re.DOTALL).fullmatch
        return lambda path, value: () if matches(value) else (invalid(path, value, row["why"]),)

    def _make_getter(self, field: str) -> _Getter:
        if field.endswith(" or 0"):
            optional = self._getter(field.removesuffix(" or 0"))
            return lambda holder, up: 0 if (found := optional(holder, up)) is None else found
        if field.endswith("#"):
            listed = self._getter(field[:-1])
            return lambda holder, up: len(listed(holder, up) or ())
        plain, read = field.lstrip("^"), self._field
        ups, steps = len(field) - len(plain), plain.split(".") if plain else []
        if not ups and len(steps) == 1:
            return lambda holder, _: read(holder, plain)

        def get(holder: Any, up: Holders) -> Any:
            value = holder
            for _ in range(ups):
                value, up = up if up is not None else (None, None)
            for step in steps:
                value = read(value, step) if isinstance(value, dict | msgspec.Struct) else None
            return value

        return get

    def _shown(self, value: Any) -> _Getter:
        if isinstance(value, str) and not value.startswith("="):
            get = self._getter(value)
            return lambda holder, up: "" if (found := get(holder, up)) is None else found
        literal = {"=null": None, "=nothing": Bare("")}.get(value, value[1:]) if isinstance(value, str) else value
        return lambda *_: literal

    def _template(self, text: Any) -> Callable[[Any, Any, Holders], Any]:
        """Return what fills the fields of a text in; arguments that are no text stay."""
        parts = re.split(r"\{([\w.^]+)\}", text) if isinstance(text, str) else [text]
        getters = [self._getter(name) for name in parts[1::2]]
        if not getters:
            return lambda *_: text

        def fill(_: Any, holder: Any, up: Holders) -> str:
            words = ["" if (found := get(holder, up)) is None else str(found) for get in getters]
            return "".join(part + word for part, word in zip(parts[::2], [*words, ""], strict=True))

        return fill

    def _test(self, key: str, wanted: Any) -> _Test:
        name, sign = _SIGN.fullmatch(key).groups()  # type: ignore[union-attr]
        get = self._getter(name)
        if sign in _COMPARED:
            return self._comparison(get, _COMPARED[sign], wanted)
        if sign == "!=":
            old, merges_empty = self._getter(wanted.removesuffix("?")), wanted.endswith("?")
            return lambda holder, up: (
                (one := get(holder, up)) != (other := old(holder, up)) and not (merges_empty and not one and not other)
            )
        values = wanted if isinstance(wanted, list) else [wanted]
        holds: Callable[[Any], bool] = {
            "?": lambda value: (value is not None) is wanted,
            "": lambda value: bool(value) is wanted if isinstance(wanted, bool) else value in values,
            "!": lambda value: value not in values,
            "==": lambda value: type(value) is type(wanted) and value == wanted,
            "[]": lambda value: wanted in (value or ()),
            "%": lambda value: number_of(value) == wanted,
            "%!": lambda value: number_of(value) != wanted,
            "~": lambda value: re.search(wanted, value or "") is not None,
            "!~": lambda value: re.search(wanted, value or "") is None,
        }[sign]
        return lambda holder, up: holds(get(holder, up))

    def _comparison(self, get: _Getter, compare: Callable[[Any, Any], bool], wanted: Any) -> _Test:
        other = self._getter(wanted) if isinstance(wanted, str) else lambda *_: wanted

        def compared(holder: Any, up: Holders) -> bool:
            left, right = get(holder, up), other(holder, up)
            return left is not None and right is not None and compare(left, right)

        return compared


def _needed(field: str, name: str, options: Mapping[str, Any]) -> str:
    """Return a field of the object without which a rule yields nothing; "" if there is none."""
    kind = name.rstrip("?!")
    if name[:1].isupper() or "[]" in field:
        is_inert = not options.get("@empty")
    elif kind in _FAULTS:
        is_tested = any(not key.startswith("@") for key in options)
        is_inert = kind not in {"required", "fixed"} and (name.endswith("?") or not is_tested)
    else:
        is_inert = not name.endswith("!") and name != "choice" and not _CHECKS.get(name, (None, False))[1]
    asked = [key for key, wanted in options.items() if _fails_on_absent(key, wanted)]
    for one in [field] * is_inert + asked:
        first = re.split(r"[.#?<>=\[]", one)[0]
        if first and first[0] not in "^@":
            return first
    return ""


def _fails_on_absent(key: str, wanted: Any) -> bool:
    """Return whether a condition fails if its field is absent."""
    if key.startswith(("@", "^")) or "#" in key or " or " in key:
        return False
    sign = _SIGN.fullmatch(key).group(2)  # type: ignore[union-attr]
    return sign in {"==", "[]", *_COMPARED} or (sign in {"", "?"} and wanted is not False)


def _guarded(rule: _Rule, tests: list[_Test]) -> _Rule:
    if not tests:
        return rule

    def guarded(path: str, holder: Any, up: Holders, seen: Seen) -> Iterable[Fault]:
        for test in tests:
            if not test(holder, up):
                return ()
        return rule(path, holder, up, seen)

    return guarded


def _unique(name: str, why: str = "") -> _Judge:
    mark, asks_empty = object(), name.endswith("!")

    def unique(path: str, value: Any, _: Any, up: Holders, seen: Seen) -> Iterable[Fault]:
        if value in (None, ""):
            if not asks_empty:
                return ()
            value = ""
        held = seen.setdefault((mark, id(up[0]) if up else 0, path.rpartition("[")[0]), set())
        if value in held:
            return (invalid(path, value, why) if why else duplicate(path, value),)
        held.add(value)
        return ()

    return unique


_FAULTS: Final[Mapping[str, Callable[..., Fault]]] = {
    "required": lambda path, _, why="": required(path, why),
    "fixed": lambda path, value, why="field is immutable": invalid(path, value, why),
    "forbidden": lambda path, _, why: forbidden(path, why),
    "invalid": invalid,
    "unsupported": unsupported,
}


# -- fields, texts and conditions ----------------------------------------------------------------------------------------


def joined(path: str, name: str) -> str:
    """Return the path of a field; either part may be empty."""
    return f"{path}.{name}" if path and name else path or name


@cache
def _place(field: str) -> Callable[[str], str]:
    ups, rest = re.fullmatch(r"((?:\.\./?)*)(.*)", field).groups()  # type: ignore[union-attr]
    if count := ups.count(".."):
        return lambda path: joined(path.rsplit(".", count)[0], rest)
    return (lambda path: f"{path}.{rest}" if path else rest) if rest else (lambda path: path)


def number_of(value: Any) -> int:
    """Return the number in a count of pods or a percentage of them; 0 for another text."""
    if isinstance(value, str):
        return int(value[:-1]) if re.fullmatch("[0-9]+%", value) else 0
    return int(value or 0)


_SIGN: Final = re.compile(r"(.*?)(\?|!~|~|!=|==|<=|>=|<|>|\[\]|%!|%|!|)")
_COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def field_of(value: Any, field: str) -> Any:
    """Return the field of a document at a path such as ``spec.selector``; None if there is none."""
    for step in field.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def attribute(value: Any, name: str) -> Any:
    """Return the field of a value of ``moorage.api`` by its name in documents; None if it has none."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, _attributes(value.__class__).get(name, name), None)


@cache
def _attributes(kind: Any) -> Mapping[str, str]:
    return dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))


#: The tables of what scheduling reads.
VALUES: Final = RuleBook("moorage.api.validation", typed=True)
