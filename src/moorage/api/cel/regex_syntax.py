"""The parser of RE2's syntax for regular expressions.

Source  github.com/google/re2/wiki/Syntax; Go's regexp/syntax, parse.go
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

MAX_REPEAT: Final = 1000
MAX_DEPTH: Final = 100


class RegexError(ValueError):
    """A pattern that RE2 rejects. ``effort``: the number of steps made before the fault was found."""

    def __init__(self, what: str, where: str = "", effort: int = 0) -> None:
        super().__init__(f"error parsing regexp: {what}" + (f": `{where}`" if where else ""))
        self.effort = effort


class Characters(NamedTuple):
    """A single character that passes the test."""

    test: Callable[[str], bool]


class Assertion(NamedTuple):
    """A zero-width assertion: ``^ $ m^ m$ b B``."""

    name: str


class Sequence(NamedTuple):
    parts: tuple[Node, ...]


class RegexGroup(NamedTuple):
    inner: Node


class Alternate(NamedTuple):
    choices: tuple[Node, ...]


class Repeat(NamedTuple):
    inner: Node
    least: int
    most: int | None
    greedy: bool


Node: TypeAlias = Characters | Assertion | Sequence | RegexGroup | Alternate | Repeat
Ranges: TypeAlias = list[tuple[int, int]]

_DIGIT: Final[Ranges] = [(48, 57)]
_WORD: Final[Ranges] = [(48, 57), (65, 90), (95, 95), (97, 122)]
_SPACE: Final[Ranges] = [(9, 10), (12, 13), (32, 32)]
_PERL: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX: Final[dict[str, Ranges]] = {
    "alnum": [(48, 57), (65, 90), (97, 122)], "alpha": [(65, 90), (97, 122)], "ascii": [(0, 127)], "blank": [(9, 9), (32, 32)],
    "cntrl": [(0, 31), (127, 127)], "digit": _DIGIT, "graph": [(33, 126)], "lower": [(97, 122)], "print": [(32, 126)],
    "punct": [(33, 47), (58, 64), (91, 96), (123, 126)], "space": [(9, 13), (32, 32)], "upper": [(65, 90)], "word": _WORD,
    "xdigit": [(48, 57), (65, 70), (97, 102)],
}  # fmt: skip
_CONTROL: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}


def parse_regex(pattern: str) -> Node:
    """Parse a pattern.

    Raises  RegexError
    """
    parser = _Parser(pattern)
    node = parser.alternatives(frozenset())
    if parser.at < len(pattern):
        raise RegexError("unexpected )", pattern)
    return node


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.at = 0
        self._depth = 0

    def _peek(self, text: str) -> bool:
        return self._pattern.startswith(text, self.at)

    def _take(self, text: str) -> bool:
        if self._peek(text):
            self.at += len(text)
            return True
        return False

    # -- structure --------------------------------------------------------------------------------------------------------

    def alternatives(self, flags: frozenset[str]) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise RegexError("expression nests too deeply", self._pattern)
        choices: list[Node] = []
        while True:
            choice, flags = self._sequence(flags)
            choices.append(choice)
            if not self._take("|"):
                break
        self._depth -= 1
        return choices[0] if len(choices) == 1 else Alternate(tuple(choices))

    def _sequence(self, flags: frozenset[str]) -> tuple[Node, frozenset[str]]:
        """Parse up to ``|`` or ``)``; flags that the pattern sets apply from there on."""
        parts: list[Node] = []
        while self.at < len(self._pattern) and self._pattern[self.at] not in "|)":
            if self._take("\\Q"):
                parts += self._quoted(flags)
                continue
            begun = self.at
            if self._pattern[self.at] == "(":
                node, flags = self._group(flags)
                if node is None:
                    continue
            else:
                node = self._atom(flags)
            parts.append(self._repeated(node, flags, begun))
        return (parts[0] if len(parts) == 1 else Sequence(tuple(parts))), flags

    def _quoted(self, flags: frozenset[str]) -> list[Node]:
        text, _, _ = self._pattern[self.at :].partition("\\E")
        self.at += len(text) + (2 if self._pattern.startswith("\\E", self.at + len(text)) else 0)
        return [_literal(char, flags) for char in text]

    def _group(self, flags: frozenset[str]) -> tuple[Node | None, frozenset[str]]:
        begun = self.at
        self.at += 1
        inner = flags
        if self._take("?"):
            named = self._take("P<") or (self._peek("<") and self._take("<"))
            if named:
                self._name(begun)
            else:
                inner, closed = self._flags(flags, begun)
                if closed:
                    return None, inner
        node = self.alternatives(inner)
        if not self._take(")"):
            raise RegexError("missing closing )", self._pattern)
        return RegexGroup(node), flags

    def _name(self, begun: int) -> None:
        name, closed, _ = self._pattern[self.at :].partition(">")
        if not closed or not name or not name.replace("_", "a").isalnum():
            raise RegexError("invalid named capture", self._pattern[begun : begun + 16])
        self.at += len(name) + 1

    def _flags(self, flags: frozenset[str], begun: int) -> tuple[frozenset[str], bool]:
        """Parse ``i``, ``m``, ``s``, ``U``; return the new flags, and True if the group ends right after them."""
        on = set(flags)
        negative = False
        while self.at < len(self._pattern):
            char = self._pattern[self.at]
            self.at += 1
            if char in "imsU":
                (on.discard if negative else on.add)(char)
            elif char == "-" and not negative:
                negative = True
            elif char in ":)":
                return frozenset(on), char == ")"
            else:
                break
        raise RegexError("invalid or unsupported Perl syntax", self._pattern[begun : self.at])

    def _repeated(self, node: Node, flags: frozenset[str], begun: int) -> Node:
        repeated = False
        while self.at < len(self._pattern):
            operator = self.at
            bounds = self._bounds()
            if bounds is None:
                break
            if repeated:
                raise RegexError("invalid nested repetition operator", self._pattern[begun : self.at])
            lazy = self._take("?")
            if bounds[0] > MAX_REPEAT or (bounds[1] or 0) > MAX_REPEAT or (bounds[1] is not None and bounds[1] < bounds[0]):
                raise RegexError("invalid repeat count", self._pattern[operator : self.at])
            node = Repeat(node, bounds[0], bounds[1], lazy is ("U" in flags))
            repeated, begun = True, operator
        return node

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        if not self._peek("{"):
            return None
        inside, closed, _ = self._pattern[self.at + 1 :].partition("}")
        least, comma, most = inside.partition(",")
        if not closed or not _is_count(least) or (comma and most and not _is_count(most)):
            return None
        self.at += len(inside) + 2
        return int(least), int(least) if not comma else int(most) if most else None

    # -- single characters --------------------------------------------------------------------------------------------------

    def _atom(self, flags: frozenset[str]) -> Node:
        char = self._pattern[self.at]
        match char:
            case "*" | "+" | "?":
                raise RegexError("missing argument to repetition operator", char)
            case ".":
                self.at += 1
                return Characters(lambda c: True) if "s" in flags else Characters(lambda c: c != "\n")
            case "^" | "$":
                self.at += 1
                return Assertion(("m" if "m" in flags else "") + char)
            case "[":
                return self._class(flags)
            case "\\":
                return self._escape(flags)
        self.at += 1
        return _literal(char, flags)

    def _escape(self, flags: frozenset[str]) -> Node:
        begun = self.at
        self.at += 1
        if self.at >= len(self._pattern):
            raise RegexError("trailing backslash at end of expression")
        char = self._pattern[self.at]
        if char in "bB":
            self.at += 1
            return Assertion(char)
        if char in "Az":
            self.at += 1
            return Assertion("^" if char == "A" else "$")
        if char == "C":
            raise RegexError("invalid escape sequence", "\\C")
        self.at = begun
        test = self._class_escape()
        return Characters(test) if test is not None else _literal(chr(self._code()), flags)

    def _class_escape(self) -> Callable[[str], bool] | None:
        """Parse ``\\d``, ``\\pL`` and the like; return None, and consume nothing, for other escapes."""
        char = self._pattern[self.at + 1 : self.at + 2]
        if char and char.lower() in _PERL:
            self.at += 2
            return _in_ranges(_PERL[char.lower()], negated=char.isupper())
        if char and char in "pP":
            return self._unicode_class()
        return None

    def _unicode_class(self) -> Callable[[str], bool]:
        begun = self.at
        negated = self._pattern[self.at + 1] == "P"
        self.at += 2
        if self._take("{"):
            name, closed, _ = self._pattern[self.at :].partition("}")
            self.at += len(name) + 1
            if not closed:
                raise RegexError("invalid character class range", self._pattern[begun:])
        else:
            name = self._pattern[self.at : self.at + 1]
            self.at += 1
        if name.startswith("^"):
            negated, name = not negated, name[1:]
        if name not in _CATEGORIES:
            raise RegexError("invalid character class range", self._pattern[begun : self.at])
        return lambda c: unicodedata.category(c).startswith(name) is not negated

    def _code(self) -> int:
        """Parse an escape that denotes one character."""
        begun = self.at
        self.at += 1
        char = self._pattern[self.at : self.at + 1]
        self.at += 1
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "x":
            return self._hex(begun)
        if char and char in "01234567" and (char == "0" or self._pattern[self.at : self.at + 1] in set("01234567")):
            digits = char
            while len(digits) < 3 and self._pattern[self.at : self.at + 1] in set("01234567"):
                digits += self._pattern[self.at]
                self.at += 1
            return int(digits, 8)
        if char and (not char.isascii() or char.isalnum()):
            raise RegexError("invalid escape sequence", self._pattern[begun : self.at])
        if not char:
            raise RegexError("trailing backslash at end of expression")
        return ord(char)

    def _hex(self, begun: int) -> int:
        if self._take("{"):
            digits, closed, _ = self._pattern[self.at :].partition("}")
            self.at += len(digits) + 1
            valid = bool(closed) and 0 < len(digits) <= 8
        else:
            digits = self._pattern[self.at : self.at + 2]
            self.at += 2
            valid = len(digits) == 2
        if not valid or any(digit not in "0123456789abcdefABCDEF" for digit in digits) or int(digits, 16) > 0x10FFFF:
            raise RegexError("invalid escape sequence", self._pattern[begun : self.at])
        return int(digits, 16)

    # -- classes ----------------------------------------------------------------------------------------------------------

    def _class(self, flags: frozenset[str]) -> Node:
        begun = self.at
        self.at += 1
        negated = self._take("^")
        tests: list[Callable[[str], bool]] = []
        ranges: Ranges = []
        first = True
        while first or not self._peek("]"):
            if self.at >= len(self._pattern):
                raise RegexError("missing closing ]", self._pattern[begun:])
            first = False
            named = self._named_class()
            if named is not None:
                tests.append(named)
                continue
            low = self._class_char()
            high = low
            if self._peek("-") and not self._pattern.startswith("-]", self.at) and self.at + 1 < len(self._pattern):
                at = self.at
                self.at += 1
                high = self._class_char()
                if high < low:
                    raise RegexError("invalid character class range", self._pattern[at - 1 : self.at])
            ranges.append((low, high))
        self.at += 1
        return Characters(_class_test(ranges, tests, negated, folded="i" in flags))

    def _named_class(self) -> Callable[[str], bool] | None:
        if self._peek("[:"):
            name, closed, _ = self._pattern[self.at + 2 :].partition(":]")
            if closed:
                bare = name.removeprefix("^")
                if bare not in _POSIX:
                    raise RegexError("invalid character class range", f"[:{name}:]")
                self.at += len(name) + 4
                return _in_ranges(_POSIX[bare], negated=name != bare)
        return self._class_escape() if self._peek("\\") else None

    def _class_char(self) -> int:
        if self._peek("\\"):
            return self._code()
        if self.at >= len(self._pattern):
            raise RegexError("missing closing ]", self._pattern)
        self.at += 1
        return ord(self._pattern[self.at - 1])


_CATEGORIES: Final = frozenset(
    "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Cs Co".split()  # noqa: SIM905
)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6


def _literal(char: str, flags: frozenset[str]) -> Node:
    if "i" in flags and char.lower() != char.upper():
        both = {char.lower(), char.upper()}
        return Characters(lambda c: c in both)
    return Characters(lambda c: c == char)


def _in_ranges(ranges: Ranges, *, negated: bool) -> Callable[[str], bool]:
    return lambda c: any(low <= ord(c) <= high for low, high in ranges) is not negated


def _class_test(ranges: Ranges, tests: list[Callable[[str], bool]], negated: bool, *, folded: bool) -> Callable[[str], bool]:
    def plainly(char: str) -> bool:
        code = ord(char)
        return any(low <= code <= high for low, high in ranges) or any(test(char) for test in tests)

    def test(char: str) -> bool:
        found = plainly(char)
        if not found and folded:
            found = any(len(c) == 1 and plainly(c) for c in (char.lower(), char.upper()))
        return found is not negated

    return test
