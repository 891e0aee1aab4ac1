"""The expressions of an admission policy in CEL: compile them, and evaluate them for a request.

Objects have the type dyn, so an expression that reads a field which an object lacks fails when it is evaluated. ``authorizer``
and ``jsonpatch`` do not exist here: expressions with them do not compile.

Source  apiserver, pkg/admission/plugin/policy: validating/validator.go, mutating/patch; pkg/admission/plugin/cel
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from moorage.api.cel.bounds import MAX_EFFORT, CelError, CostLimitError, EvalError
from moorage.api.cel.program import Program, compile_expression
from moorage.api.cel.types import DYN
from moorage.api.cel.values import Map, Value
from moorage.cluster.apiserver.vocabulary.served_kinds import Document

#: The cost limits of one expression, and of all expressions of a policy for one request; their work.
_PER_CALL: Final = 1_000_000
_BUDGET: Final = 10_000_000
_EFFORT: Final = 10 * MAX_EFFORT
#: The longest message of a messageExpression, in bytes.
_LONGEST: Final = 5 * 1024
_VARIABLES: Final = dict.fromkeys(("object", "oldObject", "request", "params", "namespaceObject", "variables"), DYN)
_STRUCTS: Final = frozenset(["JSONPatch", "Object"])
#: What only expressions about devices can use.
_OF_DEVICES: Final = frozenset(["bind", "includes"])


class PolicyError(Exception):
    """An expression that cannot be compiled or evaluated."""


class UnmetRule(NamedTuple):
    """A validation that is not satisfied."""

    message: str
    reason: str


def as_plain(value: Value) -> Any:
    """Return the data in a value of CEL."""
    if isinstance(value, Map):
        return {str(name): as_plain(inner) for name, inner in value.items()}
    return [as_plain(one) for one in value] if isinstance(value, list) else value


class Expressions:
    """The compiled expressions of the spec of a policy, in the order in which they are evaluated.

    Raises  PolicyError if one cannot be compiled
    """

    def __init__(self, spec: Document) -> None:
        self._conditions = [(one["name"], _compiled(one["expression"])) for one in spec.get("matchConditions") or ()]
        self._variables = [(one["name"], _compiled(one["expression"])) for one in spec.get("variables") or ()]
        self._validations = [
            (one, _compiled(one["expression"]), _compiled(text) if (text := one.get("messageExpression")) else None)
            for one in spec.get("validations") or ()
        ]
        self._mutations = []
        for one in spec.get("mutations") or ():
            held = one.get("applyConfiguration" if one["patchType"] == "ApplyConfiguration" else "jsonPatch") or {}
            self._mutations.append((one["patchType"], _compiled(str(held.get("expression") or ""))))

    def failures(self, given: Mapping[str, Value]) -> Iterator[UnmetRule]:
        """Yield the validations that a request does not satisfy.

        Raises  PolicyError
        """
        evaluation = _Evaluation(given)
        if not self._applies(evaluation):
            return
        for validation, program, message in self._validations:
            if evaluation.value(program) is not True:
                text = evaluation.message(message) or (validation.get("message") or "").strip()
                shown = text or f"failed expression: {validation['expression'].strip()}"
                yield UnmetRule(shown, validation.get("reason") or "Invalid")

    def mutations(self, given: Mapping[str, Value]) -> Iterator[tuple[str, Any]]:
        """Yield the type and the content of each patch; each sees the object as ``given`` has it then.

        Raises  PolicyError
        """
        if not self._applies(_Evaluation(given)):
            return
        for form, program in self._mutations:
            evaluation = _Evaluation(given)
            evaluation.define(self._variables)
            yield form, as_plain(evaluation.value(program))

    def _applies(self, evaluation: _Evaluation) -> bool:
        for name, condition in self._conditions:
            try:
                if evaluation.value(condition) is not True:
                    return False
            except PolicyError as error:
                raise PolicyError(f"match condition {name}: {error}") from None
        evaluation.define(self._variables)
        return True


def _compiled(source: str) -> Program:
    try:
        return compile_expression(source, _VARIABLES, None, _OF_DEVICES, _STRUCTS)
    except (CelError, RecursionError) as error:
        raise PolicyError(str(error) or "the expression is nested too deeply") from None


class _Evaluation:
    """The evaluation of a policy for one request, with the budget that its expressions share."""

    def __init__(self, given: Mapping[str, Value]) -> None:
        self._given = dict(given, variables=Map())
        self._left, self._effort = _BUDGET, _EFFORT

    def define(self, variables: list[tuple[str, Program]]) -> None:
        """Evaluate named expressions. One that fails has no value, and what uses it fails."""
        known: list[tuple[Value, Value]] = []
        for name, program in variables:
            try:
                known.append((name, self.value(program)))
            except PolicyError:
                continue
            self._given["variables"] = Map(known)

    def value(self, program: Program) -> Value:
        """Return the value of an expression.

        Raises  PolicyError
        """
        try:
            found, cost, spent = program.attempt(self._given, min(_PER_CALL, self._left), min(MAX_EFFORT, self._effort))
        except CostLimitError as error:
            raise PolicyError(f"validation failed due to running out of cost budget: {error}") from None
        self._left, self._effort = self._left - cost, self._effort - spent
        if isinstance(found, EvalError):
            raise PolicyError(f"expression '{program.source.strip()}' resulted in error: {found}")
        return found

    def message(self, program: Program | None) -> str:
        """Return the result of a messageExpression; "" if there is none, or none that can be shown."""
        if program is None:
            return ""
        try:
            text = self.value(program)
        except PolicyError:
            return ""
        shown = text.strip() if isinstance(text, str) else ""
        return "" if len(shown.encode()) > _LONGEST or "\n" in shown else shown
