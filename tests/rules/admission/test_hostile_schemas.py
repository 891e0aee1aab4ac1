"""A schema of a custom kind and a value of the size of a request take little time, for every keyword.

The keywords come from the server's own table of the fields of a schema. Reading a value takes some microseconds for each of its
parts; a keyword may take 100 ms of CPU time beyond that, and 50 MiB beyond what was read. ``make hostile`` tries more sizes.
"""

from __future__ import annotations

import json
import os
import re
import tracemalloc
from collections.abc import Callable
from functools import partial
from random import Random
from time import process_time
from typing import Any

import pytest

from moorage.api.documents.served_kinds import CustomVersion
from moorage.api.documents.statuses import ApiError, bounded
from moorage.api.schema.custom_kinds import apply_defaults, drop_unknown_fields
from moorage.api.schema.schemas import schema
from moorage.api.schema.value_limits import MAX_VALUES
from moorage.rules.admission.custom_resource_rules import _compile, custom_rule_faults
from moorage.rules.admission.custom_resource_strategy import _list_faults
from moorage.rules.admission.rule_costs import declared_type
from moorage.rules.admission.schema_validation import ABSENT, SchemaCheck
from moorage.rules.admission.structural_schemas import open_schema_faults, structural_faults
from tests.api.cel.hostile_macros import expression
from tests.api.cel.hostile_values import MOST_BYTES, MOST_S, QUICK_S, TRIES, scale, text

ROUNDS = int(os.environ.get("MOORAGE_HOSTILE", "1"))
SEED = os.environ.get("MOORAGE_HOSTILE_SEED", "0")
#: What reading one part of a value may take.
READ_S = 10e-6
#: What the rules of an object may take more: ten times what one may take.
RULES_S = 10 * MOST_S
BODY = 3 << 20


def _chain(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = {"a": leaf}
    return leaf


def _deep(keyword: str, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {keyword: [schema, schema]}
    return schema


def _many(count: int) -> list[dict[str, Any]]:
    return [{"required": [f"a{at}"]} for at in range(count)]


def _scalars(rng: Random, count: int) -> list[Any]:
    kinds = (lambda at: at, str, lambda at: at + 0.5, lambda at: [at], lambda at: {"a": at}, lambda at: at % 2 == 0)
    make = rng.choice(kinds)
    return [make(at) for at in range(count)]


OBJECT = {
    "type": "object",
    "properties": {
        "l": {"type": "array", "items": {"type": "integer"}}, "s": {"type": "string"},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
}  # fmt: skip


def rule_of(rng: Random) -> str:
    """Return a hostile rule for ``OBJECT``, without what rules cannot use."""
    while True:
        text = re.sub(r"\b([lsm])\b(?=[.\[ )\],])", r"self.\1", expression(rng))
        if "cel.bind" not in text and not _compile({"rule": text}, declared_type(OBJECT, is_root=False), None).error:
            return text


def case(keyword: str, rng: Random) -> tuple[dict[str, Any], Any]:
    """Return the schema of the items of a list, or of a value, that uses a keyword, and a value."""
    wide, some = rng.choice([1_000, 20_000, 60_000]), rng.choice([50, 2_000, 20_000])
    match keyword:
        case "enum":
            return {"items": {"enum": _scalars(rng, some)}}, rng.choice(
                [_scalars(rng, wide), [some - 1] * wide, ["x" * 30] * wide]
            )
        case "allOf" | "oneOf" | "anyOf":
            schemas = rng.choice([_many(some), [{"maxProperties": 1}] * some, [{"properties": {"a": {"enum": [1]}}}] * some])
            schema = rng.choice([{"items": {keyword: schemas}}, {"items": _deep(keyword, rng.choice([2, 7, 12]))}])
            return schema, rng.choice([[{}] * wide, [{"a": 1, "b": 2}] * wide, ["a"] * wide])
        case "not":
            schema = {"type": "object"}
            copies, depth = rng.choice([(1, 20), (3, 7), (1000, 1)])
            for _ in range(depth):
                schema = {"not": {"anyOf": [schema] * copies}}
            return {"items": schema}, [{}] * wide
        case "required":
            return {"items": {"required": [f"a{at}" for at in range(some)]}}, [{}] * wide
        case "pattern":
            return {"items": {"type": "string", "pattern": text(rng)[:5_000]}}, rng.choice(
                [[text(rng)[:BODY]], ["a" * 40] * wide]
            )
        case "format":
            form = rng.choice(
                ["date-time", "uri", "byte", "password", "email", "ipv6", "cidr", "duration", "uuid", "isbn", "hexcolor", "mac"]
            )
            return {"items": {"type": "string", "format": form}}, rng.choice([[text(rng)[:BODY]], [text(rng)[:50]] * wide])
        case "multipleOf" | "maximum" | "minimum":
            return {"items": {"type": "number", keyword: rng.choice([1, 0.1, 5e-324, 1e308])}}, [1e308, 10**300, -1, 0.3] * (
                wide // 4
            )
        case "exclusiveMaximum" | "exclusiveMinimum":
            return {"items": {"type": "number", keyword: True, "maximum": 1e308, "minimum": 1e308}}, [1e308] * wide
        case "maxLength" | "minLength" | "maxItems" | "minItems" | "maxProperties" | "minProperties":
            return {"items": {keyword: rng.choice([0, 2**63 - 1])}}, [[], {}, "a"] * (wide // 3)
        case "properties":
            fields = {f"a{at}": rng.choice([{}, {"type": "string"}]) for at in range(some)}
            return {"items": {"properties": fields}}, rng.choice(
                [[{}] * wide, [{"a1": 1}] * wide, [{f"b{at}": 1 for at in range(wide)}]]
            )
        case "additionalProperties":
            return {"additionalProperties": {"type": "string"}}, {f"a{at}": at for at in range(wide)}
        case "default":
            default = rng.choice(["a" * 1_000_000, _chain(40, 1), list(range(20_000)), 1])
            fields = {f"a{at}": {"default": default} for at in range(min(2_000, 1_500_000 // len(json.dumps(default))))}
            return {"items": {"properties": fields}}, [{} for _ in range(wide)]
        case "nullable":
            return {"items": {"nullable": rng.random() < 0.5, "default": "a" * 100_000}}, [None] * wide
        case "x-kubernetes-list-map-keys":
            names = [f"a{at}" for at in range(some)]
            return {"x-kubernetes-list-type": "map", keyword: names, "items": {"type": "object"}}, [
                {"a1": at} for at in range(wide)
            ]
        case "x-kubernetes-list-type":
            return {keyword: "set", "items": {}}, rng.choice(
                [list(range(wide)), [_chain(90, 1)] * (wide // 200), ["a" * 40] * wide]
            )
        case "x-kubernetes-validations":
            items = {"type": "array", "items": {"type": "integer"}}
            if rng.random() < 0.5:
                return {**OBJECT, keyword: [{"rule": rule_of(rng)}] * rng.choice([1, 30])}, {
                    "l": list(range(wide)), "s": "aB" * 500, "m": {str(at): at for at in range(wide // 4)},
                }  # fmt: skip
            rule = rng.choice(["true", "self == self", "self.all(x, x == x)", "self.exists(x, self.all(y, x != y))"])
            rules = [{"rule": rule}] * rng.choice([1, 10, 1_000])
            return {"items": {**items, keyword: rules}}, [[1, 2]] * (wide // 3)
        case "items" | "type" | "x-kubernetes-int-or-string":
            schema = {"type": "string"} if keyword != "x-kubernetes-int-or-string" else {keyword: True}
            return {"items": schema}, rng.choice([["a"] * wide, [1] * wide, [{}] * wide])
        case _:  # kept, and not read, or refused
            held = rng.choice(["a" * 1_000_000, _chain(90, 1), True, [{}] * 1_000, {f"a{at}": {} for at in range(some)}])
            # Reading a megabyte for each of a few thousand items would take seconds.
            return {"items": {keyword: held}}, [{}] * (wide // 20)


def _parts(value: Any) -> int:
    """Count the parts of a value."""
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        count += 1
        if isinstance(one, dict | list):
            waiting += one.values() if isinstance(one, dict) else one
    return count


def complete(root: dict[str, Any], document: dict[str, Any]) -> bool:
    """Give an object that was read its defaults; return False if the server refuses them."""
    drop_unknown_fields(root, document)
    try:
        apply_defaults(root, document)
    except ApiError:
        return False
    return True


def read(value: Any) -> dict[str, Any]:
    return {"spec": json.loads(json.dumps(value))}


def validate(schema: dict[str, Any], document: dict[str, Any]) -> None:
    """Do with an object of a custom kind, which was read, what the server does; ``schema`` is that of its ``spec``."""
    root = {"type": "object", "properties": {"spec": schema}}
    if not complete(root, document):
        return
    bounded(SchemaCheck().faults(root, document))
    bounded(_list_faults(root, document, ""))
    bounded(custom_rule_faults(CustomVersion(root, "a", "AList"), ABSENT, document))


def define(schema: dict[str, Any], _: None) -> None:
    """Do with a schema what the server does with a definition."""
    bounded(structural_faults(schema, "schema"))
    bounded(open_schema_faults(schema, "schema"))


@pytest.mark.slow
@pytest.mark.parametrize("keyword", schema("apiextensions.JSONSchemaProps").fields)
def test_no_keyword_takes_long(keyword):
    rng = Random(f"{SEED} {keyword}")
    for _ in range(ROUNDS):
        schema, value = case(keyword, rng)
        assert _parts(value) <= MAX_VALUES
        document = read(value)
        parts = _parts(document if complete({"type": "object", "properties": {"spec": schema}}, document) else value)
        what = f"{keyword}: {json.dumps(schema)[:200]} with {json.dumps(value)[:100]}, {parts} parts"
        rules_s = RULES_S if keyword == "x-kubernetes-validations" else 0.0
        within(what, partial(read, value), partial(validate, schema), MOST_S + parts * READ_S + rules_s)
        within(f"the definition of {what}", lambda: None, partial(define, schema), MOST_S + _parts(schema) * READ_S)


def within(what: str, prepare: Callable[[], Any], run: Callable[[Any], None], most_s: float) -> None:
    """Assert that a run takes at most some CPU time, on a machine of the speed of ``MOST_S``, and 50 MiB.

    ``prepare`` makes what the run changes.
    """
    cpu_s = float("inf")
    for _ in range(TRIES):  # another process may disturb one
        given = prepare()
        begun = process_time()
        run(given)
        cpu_s = min(cpu_s, process_time() - begun)
        if cpu_s <= most_s or cpu_s <= most_s * scale():
            break
    else:
        raise AssertionError(f"{what}: {cpu_s:.2f} s")
    if cpu_s >= QUICK_S:
        given = prepare()
        tracemalloc.start()
        try:
            run(given)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= MOST_BYTES, f"{what}: {peak / 2**20:.0f} MiB"
