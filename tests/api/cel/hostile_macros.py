"""Hostile expressions of macros: folds in folds over long ranges, with the dearest steps, as text.

Each function returns an expression of one type, with up to ``depth`` macros around each other. ``l`` is a list of integers,
``s`` a text, ``m`` a map; a name of a variable is new in its scope.
"""

from __future__ import annotations

from random import Random
from typing import Final

from moorage.api.cel.types import INT, STRING, list_of, map_of
from moorage.api.cel.values import Map

__all__ = ["MACROS", "VALUES", "VARIABLES", "expression"]

VARIABLES: Final = {"l": list_of(INT), "s": STRING, "m": map_of(STRING, INT)}
VALUES: Final = {"l": list(range(49_000)), "s": "aB\u00e9\U0001f600" * 250, "m": Map((str(at), at) for at in range(20_000))}
#: The macros that the expressions use, by the type of what they return.
MACROS: Final = {
    "bool": ("all", "exists", "exists_one", "existsOne", "has", "bind", "all2", "exists2", "existsOne2", "of_map", "optional"),
    "list": ("map", "map_if", "filter", "sortBy", "transformList", "transformList_if", "bind", "plus"),
    "int": ("size", "sum", "conditional", "bind", "transformMap", "transformMapEntry"),
    "text": ("join", "replace", "bind", "format"),
}


def expression(rng: Random, macro: str = "", depth: int = 3) -> str:
    """Return an expression of type bool with a macro on the outside, or with any."""
    return _Writer(rng).truth(depth, macro)


class _Writer:
    def __init__(self, rng: Random) -> None:
        self._rng, self._names, self._numbers = rng, 0, ["l.size()"]

    def _name(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _one(self, kind: str) -> str:
        return self._rng.choice(MACROS[kind])

    def truth(self, depth: int, macro: str = "") -> str:
        if depth <= 0:
            return self._rng.choice((
                "true", "1 / 0 > 0", "s == s + 'x'", "l == l", "[l] == [l]", "s.matches('(a|B)*x')", "7 in l", "m == m",
                "m[s] > 0", " && ".join(["(true ? true : false)"] * 99), " || ".join(["1 in [0]"] * 99), "has(m.x)",
                f"{self.number(0)} > {self.number(0)}", "quantity('1e999999999').isGreaterThan(quantity('1'))",
            ))  # fmt: skip
        x, y = self._name(), self._name()
        match macro or self._one("bool"):
            case ("all" | "exists" | "exists_one" | "existsOne") as macro:
                return (
                    f"{self.numbers(depth - 1)}.{'exists_one' if macro == 'existsOne' else macro}({x}, {self.within(x, depth)})"
                )
            case ("all2" | "exists2" | "existsOne2") as macro:
                return f"{self.numbers(depth - 1)}.{macro[:-1]}({x}, {y}, {self.within(y, depth)})"
            case "of_map":
                return f"m.all({x}, {y}, {self.within(y, depth)})"
            case "has":
                return f"{self.numbers(depth - 1)}.all({x}, has({{'a': {x}}}.a) && {self.within(x, depth)})"
            case "optional":
                return f"{self.numbers(depth - 1)}.all({x}, optional.of({x}).optMap({y}, {y} + 1).orValue(0) >= 0)"
            case "bind":
                return f"cel.bind({x}, {self.numbers(depth - 1)}, {self.truth(depth - 1)} || {x} == {x})"
            case _:
                text = macro in MACROS["text"] and macro not in MACROS["list"]
                made = self.text(depth, macro) if text else self.numbers(depth, macro)
                return f"{self.number(depth, macro)} > 0" if macro in MACROS["int"] else f"{made}.size() > 0"

    def within(self, name: str, depth: int) -> str:
        """Return a step of a fold, which may use its variable."""
        return self._rng.choice((f"({self.truth(depth - 1)})", f"{name} < 0 || {self.truth(depth - 2)}", f"{name} >= 0"))

    def numbers(self, depth: int, macro: str = "") -> str:
        if depth <= 0:
            return self._rng.choice(("l", "lists.range(316)", "lists.range(50000)", "[1, 2, 3]", "l.slice(0, 1000)"))
        x, y = self._name(), self._name()
        match macro if macro in MACROS["list"] else self._one("list"):
            case "map":
                return f"{self.numbers(depth - 1)}.map({x}, {x} + {self.number(depth - 1)})"
            case "map_if":
                return f"{self.numbers(depth - 1)}.map({x}, {self.truth(depth - 1)}, {x})"
            case "filter":
                return f"{self.numbers(depth - 1)}.filter({x}, {self.within(x, depth)})"
            case "sortBy":
                return f"{self.numbers(depth - 1)}.sortBy({x}, -{x})"
            case "transformList":
                return f"{self.numbers(depth - 1)}.transformList({x}, {y}, {x} + {y})"
            case "transformList_if":
                return f"{self.numbers(depth - 1)}.transformList({x}, {y}, {self.truth(depth - 1)}, {y})"
            case "bind":
                return f"cel.bind({x}, {self.numbers(depth - 1)}, {x} + {x})"
            case _:
                return f"({self.numbers(depth - 1)} + {self.numbers(depth - 1)})"

    def number(self, depth: int, macro: str = "") -> str:
        if depth <= 0:
            return self._rng.choice(("1", "9223372036854775807", "(1 / 0)", "l[70000]", "l.sum()", "s.size()", "int(s)"))
        x, y = self._name(), self._name()
        match macro if macro in MACROS["int"] else self._one("int"):
            case "size":
                return f"{self.numbers(depth - 1)}.size()"
            case "sum":
                return f"{self.numbers(depth - 1)}.sum()"
            case "conditional":
                return f"({self.truth(depth - 1)} ? {self.number(depth - 1)} : {self.number(depth - 1)})"
            case "transformMap":
                return f"{self.numbers(depth - 1)}.transformMap({x}, {y}, {self.number(depth - 1)}).size()"
            case "transformMapEntry":
                return f"{self.numbers(depth - 1)}.transformMapEntry({x}, {y}, {{{y}: {x}}}).size()"
            case _:
                return f"cel.bind({x}, {self.number(depth - 1)}, {x} + {x})"

    def text(self, depth: int, macro: str = "") -> str:
        if depth <= 0:
            return self._rng.choice(("s", "'aaaaaaaaaa'", "'\u00e9'", "(s + s + s + s + s + s + s + s)"))
        x = self._name()
        match macro if macro in MACROS["text"] else self._one("text"):
            case "join":
                return f"{self.numbers(depth - 1)}.map({x}, {self.text(depth - 1)}).join({self.text(depth - 1)})"
            case "replace":
                return f"{self.text(depth - 1)}.replace('', {self.text(depth - 1)})"
            case "format":
                return f"'%s%s%s'.format([{self.text(depth - 1)}, {self.text(depth - 1)}, l])"
            case _:
                return f"cel.bind({x}, {self.text(depth - 1)}, {x} + {x} + {x} + {x})"
