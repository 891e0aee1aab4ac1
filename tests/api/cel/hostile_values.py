"""Hostile operands for every function and operator of the expression library, and calls that measure one evaluation.

The library's own tables name the functions and the types of their operands, so a new function gets hostile operands by itself.
Sizes are at the bounds of an operation (``moorage.api.cel.bounds``), just beyond them, and where squares reach the cost limit.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from random import Random
from time import process_time
from typing import Any, NamedTuple

from moorage.api.cel.bounds import MAX_DIGITS, MAX_ITEMS, MAX_PARSED, MAX_TEXT, CelError
from moorage.api.cel.declarations import Overload
from moorage.api.cel.frame import Frame
from moorage.api.cel.functions.quantities import Quantity
from moorage.api.cel.functions.times import Duration, Timestamp
from moorage.api.cel.planner import plan
from moorage.api.cel.program import COST_LIMIT, standard_functions
from moorage.api.cel.syntax import CallNode, Expr, Fold, Ident, Literal
from moorage.api.cel.types import Type
from moorage.api.cel.values import (
    INT_MAX,
    INT_MIN,
    NONE,
    UINT_MAX,
    AuthorizerValue,
    GroupCheck,
    Map,
    Optional,
    PathCheck,
    ResourceCheck,
    RightsDecision,
    TypeValue,
    UInt,
)

__all__ = ["MOST_BYTES", "MOST_S", "QUICK_S", "TRIES", "Call", "Measured", "call_of", "measured", "operand", "scale"]

#: What one evaluation may take, on a machine on which ``sum(range(1000))`` takes 9 µs.
MOST_S = 0.1
MOST_BYTES = 50 * 2**20
#: How often an evaluation is measured at most, if others disturb it; and the time in which one cannot use much memory.
TRIES = 8
QUICK_S = 0.005

#: Beginning, repeated part and end of a text.
PATTERNS = (
    ("", "a", ""), ("", "aB", ""), ("", "\u00e9", ""), ("", "\u212a", ""), ("", "\U0001f600", ""), ("", "\0", ""),
    ("", '"', ""), ("", "\\", ""), ("", " ", ""), ("", " ", "a"), ("", ".", ""), ("", "/", ""), ("", "%", ""),
    ("", "%41", ""), ("", "&a=", ""), ("", "%s", ""), ("", "%.999999f", ""), ("", "%.9999e", ""), ("", "%b%x%X%d", ""),
    ("", "9", ""), ("-", "9", ""), ("0.", "0", "1"), ("1e", "9", ""), ("", "9", "e999999999"), ("1", "0", "Ei"),
    ("", "9", "."), ("", "9", "e-999999999"), ("1.", "9", "e308"), ("", "1.", ""), ("1.0.0-", "a.", "a"),
    ("1.0.0-", "1.", "1"), ("1.0.0+", "a.", "a"), ("v", "0", ".1.1"), ("", "v", ""), ("", "1h", ""), ("", "9", "h"),
    ("", "0", "ns"), ("1.", "9", "s"), ("2026-01-01T00:00:00.", "9", "Z"), ("", "../", ""), ("Europe/", "a", ""),
    ("", "::", ""), ("", "1:", ""), ("", "1.", "1"), ("1.1.1.1/", "9", ""), ("::1%", "a", ""), ("http://", "a", ""),
    ("http://a/", "%41", ""), ("http://a/", "\u00e9", ""), ("http://a?", "a=b&", ""), ("http://", "@", ""),
    ("http://[", ":", "]"), ("", "(", ""), ("", "(a*)*", ""), ("", "(x|x|x|x)*", ""), ("", "[", ""), ("", "a?", ""),
    ("(?i)", "\u212a", ""), ("", r"\pL", ""), ("", "|", ""), ("", "[^a]", ""), ("[", "a-z0-9", "]*"),
    ("[", r"\pL\PN\d", "]*"), ("(", ".*", ")y"), ("", "$^", ""), ("", r"\b", ""), ("", "(a{1,99}){1,99}", ""),
    ("", "a{999}", ""), ("(", "(a{9})", "{9}){9}"), ("(?:", "a|", "b)*$"), (r"\Q", "a", ""), ("a", "a-", "a"), ("", "A", "="),
    ("", "AAAA", ""), ("", "T", ""),
)  # fmt: skip
EXACT = (
    "", "a", "0", "1e999999999", "-1e999999999", "1e-999999999", "1e9223372036854775807", "2E6024865272343", "0e999999999",
    "1n", "8Ei", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "Europe/Berlin", "../../etc/passwd",
    "::ffff:1.1.1.1", "nan", "inf", "1e400", "((((a{9}){9}){9}){9}){9}", "(a{1,1000}){1,1000}", "(.*)(.*)(.*)(.*)y",
    "(?:a?){999}a{999}", "%.9999f", "%s", "1.2.3", "0.0.0.0/0",
)  # fmt: skip
LENGTHS = (60, 1_000, MAX_PARSED, 60_000, 99_999, MAX_TEXT // 3, MAX_TEXT - 1, MAX_TEXT + 400_000)
COUNTS = (2, 30, 316, 1_000, 10_000, MAX_ITEMS - 1, 300_000)


def text(rng: Random) -> str:
    """Return a hostile text."""
    if rng.random() < 0.3:
        return rng.choice(EXACT)
    begin, part, end = rng.choice(PATTERNS)
    return begin + part * max(1, (rng.choice(LENGTHS) - len(begin) - len(end)) // len(part)) + end


def nested(depth: int, empty: Any = ()) -> list[Any]:
    """Return a list with two references to a list with two references, and so on."""
    made: list[Any] = list(empty)
    for _ in range(depth):
        made = [made, made]
    return made


_AMOUNTS = ("0", "1", "-1", "1n", "1e999999999", "-1e999999999", "1e-999999999", "9" * 500, "1e3990", "9" * 500 + "e999")


def _decide(user: str | None, parts: Mapping[str, str]) -> RightsDecision:
    return RightsDecision(user is None, "; ".join(parts))


def _quantity(rng: Random) -> Quantity:
    one = Quantity.parse(rng.choice(_AMOUNTS))
    other = Quantity(rng.choice([0, 1, -1, 10 ** (MAX_DIGITS - 1)]), rng.choice([-9, 0, 3, 3990]))
    try:
        return one.add(other) if rng.random() < 0.5 else one
    except CelError:
        return one


#: What to parse if chance finds no valid text.
_VALID = {"url": "http://a/?" + "a=%41&" * 800, "semver": "1.0.0-" + "1." * 2400 + "1", "ip": "::1", "cidr": "10.0.0.1/8"}


def _parsed(function: str) -> Callable[[Random], Any]:
    """Return a maker of values that the library itself parses from hostile texts."""

    def make(rng: Random) -> Any:
        parse = next(one for one in standard_functions()[function].overloads if [of.kind for of in one.args] == ["string"])
        for _ in range(20):
            try:
                return parse.run(text(rng))  # type: ignore[misc]
            except CelError:
                continue
        return parse.run(_VALID[function])  # type: ignore[misc]

    return make


def _format(rng: Random) -> Any:
    names = [
        name for name, function in standard_functions().items() if name.startswith("format.") and not function.overloads[0].args
    ]
    return standard_functions()[rng.choice(names)].overloads[0].run()  # type: ignore[misc]


#: Makers of values of scalar types, by the name of the type.
SCALARS: dict[str, Callable[[Random], Any]] = {
    "bool": lambda rng: rng.random() < 0.5,
    "int": lambda rng: rng.choice([0, 1, -1, 2, 49, 5_000, MAX_ITEMS, 10_000_000, INT_MAX, INT_MIN]),
    "uint": lambda rng: UInt(rng.choice([0, 1, UINT_MAX])),
    "double": lambda rng: rng.choice(
        [0.0, -0.0, 1.5, 1e308, -1e308, 5e-324, float("inf"), float("-inf"), float("nan"), 2.0**63]
    ),
    "string": text,
    "bytes": lambda rng: rng.choice([b"a", b"\xff", b"\xf0\x9f"]) * rng.choice(LENGTHS),
    "null": lambda rng: None,
    "duration": lambda rng: Duration(rng.choice([0, 1, INT_MAX, INT_MIN])),
    "timestamp": lambda rng: Timestamp(rng.choice([0, 1, -62135596800 * 10**9, 253402300800 * 10**9 - 1])),
    "kubernetes.Quantity": _quantity,
    "kubernetes.Semver": _parsed("semver"),
    "kubernetes.URL": _parsed("url"),
    "net.IP": _parsed("ip"),
    "net.CIDR": _parsed("cidr"),
    "kubernetes.NamedFormat": _format,
    "kubernetes.authorization.Authorizer": lambda rng: AuthorizerValue(_decide, None, {"resource": "pods"}),
    "kubernetes.authorization.PathCheck": lambda rng: PathCheck(_decide, None, {"path": text(rng)}),
    "kubernetes.authorization.GroupCheck": lambda rng: GroupCheck(_decide, None, {"group": text(rng)}),
    "kubernetes.authorization.ResourceCheck": lambda rng: ResourceCheck(_decide, None, {"name": text(rng)}),
    "kubernetes.authorization.Decision": lambda rng: RightsDecision(True, text(rng)),
}


def _list(of: Type, rng: Random) -> list[Any]:
    count = rng.choice(COUNTS)
    if of.kind in {"param", "dyn", "any", "list", "map"}:
        made = rng.choice(_COMPOSED)(count)
        if of.kind == "list" and not (made and isinstance(made[0], list)):
            return [made]
        return made
    some = [operand(of, rng) for _ in range(rng.choice([1, 2, 7]))]
    made = (some * (count // len(some) + 1))[:count]
    if of.kind == "string" and rng.random() < 0.5:
        made = [f"\u00e9{at}" if rng.random() < 0.5 else str(at) for at in range(min(count, 200_000))]
    rng.shuffle(made) if count < 20_000 else None
    return made


_COMPOSED: tuple[Callable[[int], list[Any]], ...] = (
    lambda count: list(range(count)),
    lambda count: [0, 0.5] * (count // 2),
    lambda count: [str(at) for at in range(min(count, 200_000))],
    lambda count: [[]] * count,
    lambda count: [nested(60)] * min(count, 3),
    lambda count: nested(60),
    lambda count: nested(16, range(3)),
    lambda count: [list(range(1000))] * min(count, 1000),
    lambda count: [Map([(at, at) for at in range(1000)])] * min(count, 1000),
    lambda count: ["a" * (MAX_TEXT // max(count, 1))] * count,
    lambda count: [Quantity(at, 9) for at in range(min(count, 200_000))],
    lambda count: [Optional(nested(60))] * count,
    lambda count: [None, True, "a", b"a", 1.5, UInt(1)] * (count // 6),
)


def operand(of: Type, rng: Random) -> Any:
    """Return a hostile value of a type."""
    match of.kind:
        case "list":
            return _list(of.params[0], rng)
        case "map":
            return rng.choice([
                Map(), Map((str(at), at) for at in range(min(rng.choice(COUNTS), 200_000))), Map([("a", nested(60))]),
                Map([(True, 1), (2, 3), ("a" * MAX_TEXT, 1)]),
            ])  # fmt: skip
        case "opaque":
            return NONE if rng.random() < 0.2 else Optional(operand(of.params[0], rng))
        case "type":
            return TypeValue(of)
        case "param" | "dyn" | "any":
            if rng.random() < 0.4:
                return rng.choice(_COMPOSED)(rng.choice(COUNTS))
            return rng.choice(list(SCALARS.values()))(rng)
        case _:
            return SCALARS[of.name if of.kind == "struct" else of.kind](rng)


class Call(NamedTuple):
    """One evaluation: a function with its operands."""

    name: str
    overload: Overload
    args: list[Any]

    def evaluate(self, times: int = 1) -> Any:
        """Run the call, once or in a fold, within the limit of a rule; return the value or the error."""
        names = [f"v{at}" for at in range(len(self.args))]
        nodes = [Ident(0, name) for name in names]
        target, given = (nodes[0], nodes[1:]) if self.overload.member else (None, nodes)
        tree: Expr = CallNode(0, self.name, list(given), target, (self.overload.name,))
        if times > 1:
            true = Literal(0, True)
            tree = Fold(0, Ident(0, "times"), ("i",), "@result", true, true, tree, true)
        try:
            variables = {**dict(zip(names, self.args, strict=True)), "times": range_of(times)}
            return plan(tree, standard_functions())(Frame(variables, COST_LIMIT))
        except CelError as error:
            return error

    def __str__(self) -> str:
        return f"{self.overload.name} of {', '.join(map(_shown, self.args))}"


@cache
def range_of(count: int) -> list[int]:
    """Return the numbers below ``count``."""
    return list(range(count))


def _shown(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, str | bytes) and len(value) > 40:
        return f"{kind} {value[:20]!r}…{value[-20:]!r} of length {len(value)}"
    if isinstance(value, list | Map):
        first = next(iter(value), None)
        return f"{kind} of {len(value)}, the first {_shown(first)}"
    return f"{kind} {_shown(value.held)}" if isinstance(value, Optional) else f"{kind} {str(value)[:60]}"


def call_of(name: str, overload: Overload, rng: Random) -> Call:
    """Return a call of an overload with hostile operands."""
    return Call(name, overload, [operand(of, rng) for of in overload.args])


class Measured(NamedTuple):
    """The CPU time of an evaluation, and the memory at its peak if it took long enough to use much."""

    cpu_s: float
    peak: int


def measured(evaluate: Callable[[], Any], *, memory: bool = True) -> Measured:
    """Evaluate once for the time, and if that takes over 5 ms, again for the memory."""
    begun = process_time()
    evaluate()
    cpu_s = process_time() - begun
    if cpu_s < QUICK_S or not memory:
        return Measured(cpu_s, 0)
    tracemalloc.start()
    try:
        evaluate()
        return Measured(cpu_s, tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def scale() -> float:
    """Return how much slower this machine is than the one of ``MOST_S``, at this moment."""
    times: list[float] = []
    for _ in range(7):
        begun = process_time()
        for _ in range(100):
            sum(range(1000))
        times.append((process_time() - begun) / 100 / 9e-6)
    return max(1.0, sorted(times)[3])


def overloads() -> Iterator[tuple[str, Overload]]:
    """Yield every overload of the library."""
    for name, function in standard_functions().items():
        for overload in function.overloads:
            yield name, overload
