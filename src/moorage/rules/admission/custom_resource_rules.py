"""Rules of custom kinds in CEL (``x-kubernetes-validations``): compile them with the schema's types, and check objects.

A rule sees the value of its part of the schema as ``self``; a rule about a change also sees ``oldSelf``, and is checked only if
there is an old value. Rules about parts that an update leaves unchanged are not checked again. All rules of an object share one
budget, in CEL's units.

Source  apiextensions-apiserver, pkg/apiserver/schema/cel: compilation.go, validation.go, model/schemas.go; apiserver,
        pkg/apis/cel/config.go and pkg/cel/escaping.go
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from moorage.api.cel.bounds import MAX_EFFORT, CelError, CostLimitError, EvalError
from moorage.api.cel.call_estimates import DeclaredSize, product
from moorage.api.cel.program import Program, compile_expression, compile_with_estimate
from moorage.api.cel.types import BOOL, STRING, optional_of
from moorage.api.cel.values import NONE, Optional, Value
from moorage.api.documents.served_kinds import CustomVersion, Schema
from moorage.api.validation.faults import duplicate, forbidden, invalid, required
from moorage.errors import Bare, Fault
from moorage.rules.admission import rule_costs
from moorage.rules.admission.schema_validation import ABSENT, field_path, old_item, old_items

Faults = Iterator[Fault]
#: The cost limits of one rule, and of all rules of an object.
_PER_CALL: Final = 1_000_000
_BUDGET: Final = 10_000_000
#: The work of all rules of an object, and that of starting one. The ratio to the work of one rule is that of the cost limits.
MAX_RULES_EFFORT: Final = 10 * MAX_EFFORT
_START: Final = 100
_RULES: Final = "x-kubernetes-validations"
_OUT_OF_BUDGET: Final = "validation failed due to running out of cost budget, no further validation rules will be run"
_TEXTS: Final = re.compile(r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"")
#: What only expressions about devices can use.
_OF_DEVICES: Final = frozenset(["bind", "includes"])
#: Functions of Kubernetes' libraries for CEL that do not exist here. Rules with them are stored and have no effect.
_MISSING: Final = ("authorizer", "jsonpatch")
_MISSING_NAME: Final = re.compile(rf"undeclared reference to '(?:{'|'.join(_MISSING)})'")


# -- compilation -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rule:
    """A compiled rule. If it has no ``program``, ``error`` is the reason. ``message`` is the compiled messageExpression.

    The costs are estimates for one value; they are 0 unless the caller asks for estimates.
    """

    source: Mapping[str, Any]
    program: Program | None = None
    message: Program | None = None
    error: str = ""
    message_error: str = ""
    cost: int = 0
    message_cost: int = 0

    @property
    def uses_old(self) -> bool:
        return "oldSelf" in re.findall(r"\w+", _TEXTS.sub("", self.source["rule"]))

    @property
    def is_broken(self) -> bool:
        """Whether the rule is invalid, and does not only use a function that does not exist here."""
        return bool(self.error) and not _MISSING_NAME.search(self.error)

    @property
    def has_optional_old(self) -> bool:
        return bool(self.source.get("optionalOldSelf"))


@dataclass(frozen=True)
class _Node:
    """The rules of a schema and of the schemas inside it that have rules.

    ``compares``: some of the rules use ``oldSelf``. They are checked even if the value is unchanged.
    ``least_bytes``: the fewest bytes that a value takes as JSON, if costs are estimated.
    """

    schema: Schema
    rules: tuple[_Rule, ...] = ()
    items: _Node | None = None
    additional: _Node | None = None
    properties: Mapping[str, _Node] = field(default_factory=dict)
    compares: bool = False
    least_bytes: int = 0
    is_root: bool = False


def _compiled(schema: Schema, *, is_root: bool = False, estimates: bool = False) -> _Node | None:
    """Return the rules in a schema, None if there are none; with ``estimates``, with what they may cost."""
    own = [one for one in schema.get(_RULES, ()) if one.get("rule", "").strip()]
    declared = rule_costs.declared_type(schema, is_root=is_root) if own else None
    size = rule_costs.declared_size(schema, is_root=is_root) if own and estimates else None
    rules = tuple(_compile(one, declared, size) for one in own) if declared is not None else ()
    inner = {name: _compiled(below, estimates=estimates) for name, below in schema.get("properties", {}).items()}
    given = ((part, schema.get(part)) for part in _PARTS)
    parts = {part: _compiled(below, estimates=estimates) for part, below in given if isinstance(below, Mapping)}
    properties = {name: node for name, node in inner.items() if node is not None}
    if not rules and not properties and not any(parts.values()):
        return None
    below = [node for node in (*properties.values(), *parts.values()) if node is not None]
    compares = any(rule.uses_old for rule in rules) or any(node.compares for node in below)
    least = 0 if size is None else size.least_bytes
    return _Node(schema, rules, parts.get("items"), parts.get("additionalProperties"), properties, compares, least, is_root)


_PARTS: Final = ("items", "additionalProperties")


def _compile(source: Mapping[str, Any], declared: rule_costs.Declared, size: DeclaredSize | None) -> _Rule:
    old = optional_of(declared.type) if source.get("optionalOldSelf") else declared.type
    variables = {"self": declared.type, "oldSelf": old}

    def compiled(expression: str) -> tuple[Program, int]:
        if size is None:
            return compile_expression(expression, variables, declared.fields, _OF_DEVICES), 0
        return compile_with_estimate(expression, variables, declared.fields, _OF_DEVICES, lambda path: size.at(path[1:]))

    try:
        program, cost = compiled(source["rule"])
    except (CelError, RecursionError) as error:
        return _Rule(source, error=str(error) or "the rule is nested too deeply")
    if program.type != BOOL:
        return _Rule(source, error="cel expression must evaluate to a bool")
    expression = source.get("messageExpression", "")
    if not expression.strip():
        return _Rule(source, program, cost=cost)
    try:
        message, message_cost = compiled(expression)
    except (CelError, RecursionError) as error:
        return _Rule(source, program, message_error=f"messageExpression {error}", cost=cost)
    if message.type != STRING:
        return _Rule(source, program, message_error="messageExpression must evaluate to a string", cost=cost)
    return _Rule(source, program, message, cost=cost, message_cost=message_cost)


def rule_faults(schema: Schema, path: str, *, is_stored: bool) -> Faults:
    """Yield the faults of the rules in the structural schema of a definition. ``is_stored``: the schema has not changed."""
    node = _compiled(schema, is_root=True, estimates=True)
    if node is not None:
        costs = rule_costs.RuleCosts(is_stored=is_stored)
        yield from _compile_faults(node, _Place(path, 1), costs)
        yield from costs.faults(path)


class _Place(NamedTuple):
    """Where a schema is, and how many values it can have (None: there is no limit).

    ``uncorrelated``: the place of a list within which old values cannot be found.
    """

    path: str
    values: int | None
    uncorrelated: str = ""


def _compile_faults(node: _Node, at: _Place, costs: rule_costs.RuleCosts) -> Faults:
    path, inside = at.path, rule_costs.elements_below(node.schema, at.values)
    if node.items is not None:
        by_key = node.schema.get("x-kubernetes-list-type") == "map"
        below = at.uncorrelated or ("" if by_key else path)
        yield from _compile_faults(node.items, _Place(f"{path}.items", inside, below), costs)
    below = at.uncorrelated  # entries and fields have keys, also those of atomic maps
    if node.additional is not None:
        yield from _compile_faults(node.additional, _Place(f"{path}.additionalProperties", inside, below), costs)
    for name, inner in node.properties.items():
        yield from _compile_faults(inner, _Place(f"{path}.properties[{name}]", inside, below), costs)
    for i, rule in enumerate(node.rules):
        values = rule_costs.LARGEST_REQUEST // (node.least_bytes + 1) if at.values is None else at.values
        yield from _rule_faults(rule, f"{path}.{_RULES}[{i}]", values, costs)
        uses_old = rule.uses_old and not rule.is_broken
        if uses_old and at.uncorrelated:
            why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {at.uncorrelated}"
            yield invalid(f"{path}.{_RULES}[{i}].rule", rule.source["rule"], why)
        elif not uses_old and rule.source.get("optionalOldSelf") is not None:
            why = "may not be set if oldSelf is not used in rule"
            yield invalid(f"{path}.{_RULES}[{i}].optionalOldSelf", rule.source["optionalOldSelf"], why)


def _rule_faults(rule: _Rule, where: str, values: int, costs: rule_costs.RuleCosts) -> Faults:
    """Yield the faults of a rule that is checked for as many values."""
    yield from costs.add(f"{where}.rule", product(rule.cost, values), "estimated rule cost")
    if rule.is_broken:
        yield invalid(f"{where}.rule", _shown_rule(rule.source), rule.error)
    if rule.message_error and not _MISSING_NAME.search(rule.message_error):
        yield invalid(f"{where}.messageExpression", _shown_rule(rule.source), rule.message_error)
    elif rule.message is not None:
        yield from costs.add(f"{where}.messageExpression", rule.message_cost, "estimated messageExpression cost")


def _shown_rule(source: Mapping[str, Any]) -> Bare:
    """Return a rule as kube-apiserver shows it in messages."""
    texts = {name[0].upper() + name[1:]: source.get(name, "") for name in ("rule", "message", "messageExpression")}
    places = {"Reason": source.get("reason"), "FieldPath": source.get("fieldPath", "")}
    shown = json.dumps(
        {**texts, **places, "OptionalOldSelf": source.get("optionalOldSelf")}, ensure_ascii=False, separators=(",", ":")
    )
    return Bare(re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", shown))


def unsupported_rules(schema: Schema) -> Iterator[str]:
    """Yield a warning for each rule that uses a function which does not exist here, and therefore has no effect."""
    node = _compiled(schema, is_root=True)
    waiting = [] if node is None else [node]
    while waiting:
        one = waiting.pop()
        for rule in one.rules:
            found = _MISSING_NAME.search(rule.error)
            if found:
                yield f"x-kubernetes-validations: this server does not check the rule {rule.source['rule']!r}: {found[0]}"
        waiting += [inner for inner in (one.items, one.additional, *one.properties.values()) if inner is not None]


# -- checking ----------------------------------------------------------------------------------------------------------

_COMPILED: Final[WeakKeyDictionary[CustomVersion, list[_Node | None]]] = WeakKeyDictionary()


def custom_rule_faults(version: CustomVersion, old: Any, new: Any) -> Faults:
    """Yield the faults that the rules of a custom kind find in an object. ``old`` is ABSENT for a new one."""
    held = _COMPILED.get(version)
    if held is None:
        held = _COMPILED[version] = [_compiled(version.schema, is_root=True)]
    if held[0] is not None:
        yield from _Check().faults(held[0], new, old, "")


class _OutOfBudgetError(Exception):
    """The rules of an object together exceed their budget."""


class _Check:
    """A check of one object, with the budget that its rules share."""

    def __init__(self) -> None:
        self._left = _BUDGET
        self._effort = MAX_RULES_EFFORT

    def faults(self, node: _Node, value: Any, old: Any, path: str) -> Faults:
        """Yield the faults of a value and of its parts."""
        try:
            yield from self._faults(node, value, old, path)
        except _OutOfBudgetError:
            return

    def _faults(self, node: _Node, value: Any, old: Any, path: str) -> Faults:
        if value is None or (old is not ABSENT and old == value and not node.compares):
            return
        if node.rules:
            yield from self._rules(node, value, old, path)
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            for name, inner in value.items():
                below = node.properties.get(name)
                where = field_path(path, name)
                if below is None and name not in node.schema.get("properties", {}):
                    below, where = node.additional, f"{path}[{name}]"
                if below is not None:
                    yield from self._faults(below, inner, before.get(name, ABSENT), where)
        elif isinstance(value, list) and node.items is not None:
            held = old_items(node.schema, old)
            for i, inner in enumerate(value):
                yield from self._faults(node.items, inner, old_item(node.schema, held, inner), f"{path}[{i}]")

    def _rules(self, node: _Node, value: Any, old: Any, path: str) -> Faults:
        is_same = old is not ABSENT and old == value
        has_old = old is not ABSENT and old is not None
        now = rule_costs.as_value(node.schema, value, is_resource=node.is_root)
        before = rule_costs.as_value(node.schema, old, is_resource=node.is_root) if has_old else None
        for rule in node.rules:
            if rule.program is None or (not rule.uses_old and is_same):
                continue
            if rule.uses_old and not has_old and not rule.has_optional_old:
                continue
            held: Value = before
            if rule.has_optional_old:
                held = Optional(before) if has_old else NONE
            yield from self._rule(rule, node, value, {"self": now, "oldSelf": held}, path)

    def _rule(self, rule: _Rule, node: _Node, value: Any, variables: Mapping[str, Value], path: str) -> Faults:
        source, kind = rule.source, node.schema.get("type", "")
        shown = source.get("message", "").strip() or source["rule"].strip()
        assert rule.program is not None
        is_short = self._left < _PER_CALL or self._effort < MAX_EFFORT
        try:
            found = self._run(rule.program, variables)
        except CostLimitError as error:
            what = f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}"
            yield invalid(path, kind, _OUT_OF_BUDGET if is_short else what)
            raise _OutOfBudgetError from None
        if isinstance(found, EvalError):
            if str(found).startswith("no such overload"):
                mismatch = "call arguments did not match a supported operator, function or macro signature for rule"
                why = f"'{found}': {mismatch}: {shown}"
            else:
                why = f"{found} evaluating rule: {shown}"
            yield invalid(path, kind, why)
        elif found is not True:
            detail = (
                self._message(rule, variables) or source.get("message", "").strip() or f"failed rule: {source['rule'].strip()}"
            )
            where = f"{path}{source['fieldPath']}".lstrip(".") if source.get("fieldPath") else path
            yield _fault(source.get("reason"), where, Bare("") if kind in {"array", "object"} else value, detail)

    def _run(self, program: Program, variables: Mapping[str, Value]) -> Value | EvalError:
        """Evaluate an expression at the expense of the budget.

        Raises  CostLimitError
        """
        effort = min(MAX_EFFORT, self._effort - _START)
        found, cost, spent = program.attempt(variables, min(_PER_CALL, self._left), effort)
        self._left -= cost
        self._effort -= spent + _START
        return found

    def _message(self, rule: _Rule, variables: Mapping[str, Value]) -> str:
        """Return the result of a rule's messageExpression; "" if it fails or there is none."""
        if rule.message is None:
            return ""
        try:
            text = self._run(rule.message, variables)
        except CostLimitError:
            raise _OutOfBudgetError from None
        return text.strip() if isinstance(text, str) and "\n" not in text else ""


def _fault(reason: str | None, path: str, value: Any, detail: str) -> Fault:
    match reason:
        case "FieldValueForbidden":
            return forbidden(path, detail)
        case "FieldValueRequired":
            return required(path, detail)
        case "FieldValueDuplicate":
            return duplicate(path, value)
        case _:
            return invalid(path, value, detail)
