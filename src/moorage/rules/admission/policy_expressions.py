"""The expressions of an admission policy in CEL: compile them, and evaluate them for a request.

Objects and parameters have the type dyn, so an expression that reads a field which an object lacks fails when it is evaluated.
The request and its namespace have the types that Kubernetes declares for them, and variables the types of their expressions.

Source  apiserver, pkg/admission/plugin/policy: validating/validator.go, mutating/patch; pkg/admission/plugin/cel: compile.go,
        composition.go, activation.go; pkg/admission/plugin/webhook/matchconditions
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from moorage.api.cel.bounds import MAX_EFFORT, CelError, CostLimitError, EvalError
from moorage.api.cel.checker import Fields
from moorage.api.cel.program import Program, compile_expression
from moorage.api.cel.types import BOOL, DYN, INT, NULL, STRING, TIMESTAMP, Type, list_of, map_of, typed
from moorage.api.cel.values import Map, Value
from moorage.api.documents.served_kinds import Document, as_mapping
from moorage.api.validation.faults import Faults
from moorage.api.validation.rule_tables import check
from moorage.errors import Fault

#: The cost limits of one expression, and of all expressions of a policy for one request; their work.
_PER_CALL: Final = 1_000_000
_BUDGET: Final = 10_000_000
_EFFORT: Final = 10 * MAX_EFFORT
#: The longest message of a messageExpression, in bytes.
_LONGEST: Final = 5 * 1024
_STRUCTS: Final = frozenset(["JSONPatch", "Object"])
#: What only expressions about devices can use.
_OF_DEVICES: Final = frozenset(["bind", "includes"])


class PolicyError(Exception):
    """An expression that cannot be compiled or evaluated."""


class UnmetRule(NamedTuple):
    """A validation that is not satisfied, or cannot be evaluated; ``place`` is its number in the policy."""

    message: str
    reason: str
    place: int = 0


def as_plain(value: Value) -> Any:
    """Return the data in a value of CEL."""
    if isinstance(value, Map):
        return {str(name): as_plain(inner) for name, inner in value.items()}
    return [as_plain(one) for one in value] if isinstance(value, list) else value


# -- types -------------------------------------------------------------------------------------------------------------

_STRINGS: Final = list_of(STRING)
AUTHORIZER: Final = typed("authorizer")


def _struct(name: str) -> Type:
    return Type("struct", f"kubernetes.{name}")


_REQUEST: Final = _struct("AdmissionRequest")
_NAMESPACE: Final = _struct("Namespace")
_VARIABLES: Final = _struct("variables")
OBJECT: Final = Type("struct", "Object")
PATCHES: Final = list_of(Type("struct", "JSONPatch"))
_GVK: Final = dict.fromkeys(("group", "version", "kind"), STRING)
_GVR: Final = dict.fromkeys(("group", "version", "resource"), STRING)
#: What requests and namespaces have, by the name of the type.
_FIELDS: Final[Mapping[str, Mapping[str, Type]]] = {
    "kubernetes.GroupVersionKind": _GVK,
    "kubernetes.GroupVersionResource": _GVR,
    "kubernetes.UserInfo": {"username": STRING, "uid": STRING, "groups": _STRINGS, "extra": map_of(STRING, _STRINGS)},
    _REQUEST.name: {
        "kind": _struct("GroupVersionKind"), "resource": _struct("GroupVersionResource"), "subResource": STRING,
        "requestKind": _struct("GroupVersionKind"), "requestResource": _struct("GroupVersionResource"),
        "requestSubResource": STRING, "name": STRING, "namespace": STRING, "operation": STRING,
        "userInfo": _struct("UserInfo"), "dryRun": BOOL, "options": DYN,
    },
    _NAMESPACE.name: {
        "metadata": _struct("NamespaceMetadata"), "spec": _struct("NamespaceSpec"), "status": _struct("NamespaceStatus"),
    },
    "kubernetes.NamespaceMetadata": {
        **dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), STRING),
        **dict.fromkeys(("labels", "annotations"), map_of(STRING, STRING)), "finalizers": _STRINGS,
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), TIMESTAMP),
        **dict.fromkeys(("deletionGracePeriodSeconds", "generation"), INT),
    },
    "kubernetes.NamespaceSpec": {"finalizers": _STRINGS},
    "kubernetes.NamespaceStatus": {"conditions": list_of(_struct("NamespaceCondition")), "phase": STRING},
    "kubernetes.NamespaceCondition": {
        **dict.fromkeys(("status", "type", "message", "reason"), STRING), "lastTransitionTime": TIMESTAMP,
    },
    "JSONPatch": {"op": STRING, "path": STRING, "from": STRING, "value": DYN},
    AUTHORIZER.name: {"requestResource": typed("resourcecheck")},
}  # fmt: skip
#: What a document of a policy may have at each place of an expression; any type, if it is None.
_ANY: Final[Sequence[Type] | None] = None
_BOOLEAN: Final = (BOOL,)
_TEXT: Final = (STRING,)


class PolicyTypes:
    """The types of the variables of a policy's expressions. ``objects``: the type of ``object`` and ``oldObject``, with the
    fields of its structs, if it is known; they have any otherwise.
    """

    def __init__(self, spec: Document, objects: Type = DYN, params: Type = DYN, fields: Fields | None = None) -> None:
        self._names: dict[str, Type] = {
            "object": objects,
            "oldObject": objects,
            "request": _REQUEST,
            "namespaceObject": _NAMESPACE,
        }
        if spec.get("paramKind"):
            self._names["params"] = params
        self._variables: dict[str, Type] = {}
        self._fields = {**_FIELDS, **(fields or {}), _VARIABLES.name: self._variables}

    def compiled(
        self, source: str, wanted: Sequence[Type] | None = _ANY, *, authorizes: bool = True, structs: bool = False
    ) -> Program:  # fmt: skip
        """Compile an expression that has one of the ``wanted`` types.

        Raises  PolicyError with the faults as kube-apiserver words them
        """
        names = {**self._names, "authorizer": AUTHORIZER} if authorizes else self._names
        try:
            program = compile_expression(source, names, self._fields, _OF_DEVICES, _STRUCTS if structs else frozenset())
        except (CelError, RecursionError) as error:
            raise PolicyError(str(error) or "compilation failed: the expression is nested too deeply") from None
        if wanted is None or program.type in wanted:
            return program
        if len(wanted) == 1:
            raise PolicyError(f"must evaluate to {_shown(wanted[0])} but got {_shown(program.type)}")
        raise PolicyError(f"must evaluate to one of [{' '.join(map(_shown, wanted))}] but got {_shown(program.type)}")

    def define(self, name: str, of: Type) -> None:
        """Let the expressions that follow use a variable."""
        self._names["variables"] = _VARIABLES
        self._variables[name] = of


def _shown(of: Type) -> str:
    return "null_type" if of == NULL else str(of)


# -- expressions -------------------------------------------------------------------------------------------------------


class Expressions:
    """The compiled expressions of the spec of a policy, in the order in which they are evaluated.

    An expression that does not compile is an error when it is evaluated: policies are checked when they are written.
    """

    def __init__(self, spec: Document) -> None:
        types = PolicyTypes(spec)
        self._ignores_errors = (spec.get("failurePolicy") or "Fail") == "Ignore"
        self._conditions = [_tried(types, one["expression"], _BOOLEAN) for one in spec.get("matchConditions") or ()]
        self._variables: list[tuple[str, _Maybe]] = []
        for one in spec.get("variables") or ():
            program = _tried(types, one["expression"])
            types.define(one["name"], DYN if isinstance(program, PolicyError) else program.type)
            self._variables.append((one["name"], program))
        self._validations = [
            (one, _tried(types, one["expression"], _BOOLEAN), _tried(types, text, _TEXT, authorizes=False) if text else None)
            for one in spec.get("validations") or ()
            for text in (one.get("messageExpression"),)
        ]
        annotations = spec.get("auditAnnotations") or ()
        self._annotations = [(one["key"], _tried(types, one["valueExpression"], (STRING, NULL))) for one in annotations]
        self._mutations = []
        for one in spec.get("mutations") or ():
            applies = one["patchType"] == "ApplyConfiguration"
            held = one.get("applyConfiguration" if applies else "jsonPatch") or {}
            wanted = (OBJECT,) if applies else (PATCHES,)
            self._mutations.append((one["patchType"], _tried(types, str(held.get("expression") or ""), wanted, structs=True)))

    def failures(self, given: Mapping[str, Value]) -> Iterator[UnmetRule]:
        """Yield the validations that a request does not satisfy, and the errors if the policy does not ignore them."""
        evaluation = _Evaluation(given)
        try:
            if not self._applies(evaluation):
                return
        except PolicyError as error:
            yield UnmetRule(str(error), "Invalid")
            return
        evaluation.define(self._variables)
        for place, (validation, program, message) in enumerate(self._validations):
            try:
                if evaluation.value(program) is not True:
                    text = evaluation.message(message) or (validation.get("message") or "").strip()
                    shown = text or f"failed expression: {validation['expression'].strip()}"
                    yield UnmetRule(shown, validation.get("reason") or "Invalid", place)
            except PolicyError as error:
                if not self._ignores_errors:
                    yield UnmetRule(str(error), "Invalid", place)

    def annotations(self, given: Mapping[str, Value], *, wanted: bool) -> Iterator[tuple[str, str | PolicyError]]:
        """Yield the audit annotations of a request: keys and values, or the errors if the policy does not ignore them.

        Errors refuse a request whatever its binding does with violations. Values are not ``wanted`` without an audit log.
        """
        evaluation = _Evaluation(given)
        if not self._annotations or (self._ignores_errors and not wanted) or not self._may_apply(evaluation):
            return
        evaluation.define(self._variables)
        for key, program in self._annotations:
            try:
                value = evaluation.value(program)
            except PolicyError as error:
                if not self._ignores_errors:
                    yield key, error
                continue
            if isinstance(value, str) and (shown := value.strip()):
                yield key, shown

    def mutations(self, given: Mapping[str, Value]) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Yield the type of each patch, and a function that returns its content for the object that ``given`` has then.

        Raises  PolicyError, as do the functions
        """
        if not self._applies(_Evaluation(given)):
            return

        def made(program: _Maybe) -> Any:
            evaluation = _Evaluation(given)
            evaluation.define(self._variables)
            return as_plain(evaluation.value(program))

        for form, program in self._mutations:
            yield form, partial(made, program)

    def _may_apply(self, evaluation: _Evaluation) -> bool:
        try:
            return self._applies(evaluation)
        except PolicyError:
            return False

    def _applies(self, evaluation: _Evaluation) -> bool:
        """Return whether all match conditions hold. One that does not hold decides, whatever errors the others have.

        Raises  PolicyError
        """
        errors: dict[str, None] = {}
        for condition in self._conditions:
            try:
                if evaluation.value(condition) is not True:
                    return False
            except PolicyError as error:
                errors[str(error)] = None
        if errors and self._ignores_errors:
            return False
        if errors:
            raise PolicyError(next(iter(errors)) if len(errors) == 1 else f"[{', '.join(errors)}]")
        return True


_Maybe = Program | PolicyError


def _tried(
    types: PolicyTypes, source: str, wanted: Sequence[Type] | None = _ANY, *, authorizes: bool = True, structs: bool = False
) -> _Maybe:  # fmt: skip
    try:
        return types.compiled(source, wanted, authorizes=authorizes, structs=structs)
    except PolicyError as error:
        return PolicyError(f"compilation error: {error}")


class _Evaluation:
    """The evaluation of a policy for one request, with the budget that its expressions share."""

    def __init__(self, given: Mapping[str, Value]) -> None:
        self._given = dict(given, variables=Map())
        self._left, self._effort = _BUDGET, _EFFORT

    def define(self, variables: list[tuple[str, _Maybe]]) -> None:
        """Evaluate named expressions. One that fails has no value, and what uses it fails."""
        known: list[tuple[Value, Value]] = []
        for name, program in variables:
            try:
                known.append((name, self.value(program)))
            except PolicyError:
                continue
            self._given["variables"] = Map(known)

    def value(self, program: _Maybe) -> Value:
        """Return the value of an expression.

        Raises  PolicyError
        """
        if isinstance(program, PolicyError):
            raise program
        try:
            found, cost, spent = program.attempt(self._given, min(_PER_CALL, self._left), min(MAX_EFFORT, self._effort))
        except CostLimitError as error:
            raise PolicyError(f"validation failed due to running out of cost budget: {error}") from None
        self._left, self._effort = self._left - cost, self._effort - spent
        if isinstance(found, EvalError):
            raise PolicyError(f"expression '{program.source.strip()}' resulted in error: {found}")
        return found

    def message(self, program: _Maybe | None) -> str:
        """Return the result of a messageExpression; "" if there is none, or none that can be shown."""
        if program is None:
            return ""
        try:
            text = self.value(program)
        except PolicyError:
            return ""
        shown = text.strip() if isinstance(text, str) else ""
        return "" if len(shown.encode()) > _LONGEST or "\n" in shown else shown


# -- checks ------------------------------------------------------------------------------------------------------------


@check("policy expressions")
def _policy(_: str, policy: Document) -> Faults:
    """Yield the faults of the expressions of a policy."""
    yield from expression_faults(as_mapping(policy.get("spec")))


def expression_faults(spec: Document) -> Iterator[Fault]:
    """Yield the faults of the expressions of a policy that is written, by their places in it.

    Source  kubernetes, pkg/apis/admissionregistration/validation/validation.go
    """
    types = PolicyTypes(spec)
    for at, one in enumerate(spec.get("matchConditions") or ()):
        yield from _checked(types, _source(one, "expression"), f"spec.matchConditions[{at}].expression", _BOOLEAN)[1]
    for at, one in enumerate(spec.get("variables") or ()):
        source, place = _source(one, "expression"), f"spec.variables[{at}].expression"
        program, fault = _checked(types, source, place)
        yield from fault
        types.define(str(one.get("name") or ""), DYN if program is None else program.type)
    for at, one in enumerate(spec.get("validations") or ()):
        place = f"spec.validations[{at}]"
        yield from _checked(types, _source(one, "expression"), f"{place}.expression", _BOOLEAN)[1]
        text = _source(one, "messageExpression")
        yield from _checked(types, text, f"{place}.messageExpression", _TEXT, authorizes=False)[1]
    for at, one in enumerate(spec.get("auditAnnotations") or ()):
        place = f"spec.auditAnnotations[{at}].valueExpression"
        yield from _checked(types, _source(one, "valueExpression"), place, (STRING, NULL))[1]
    for at, one in enumerate(spec.get("mutations") or ()):
        for field, wanted, form in (("applyConfiguration", OBJECT, "ApplyConfiguration"), ("jsonPatch", PATCHES, "JSONPatch")):
            if one.get("patchType") != form:
                continue
            source = _source(one.get(field) or {}, "expression")
            yield from _checked(types, source, f"spec.mutations[{at}].{field}.expression", (wanted,), structs=True)[1]


def _source(one: Document, field: str) -> str:
    found = one.get(field)
    return found if isinstance(found, str) else ""


def _checked(
    types: PolicyTypes, source: str, place: str, wanted: Sequence[Type] | None = _ANY, *, authorizes: bool = True,
    structs: bool = False,
) -> tuple[Program | None, list[Fault]]:  # fmt: skip
    """Return a compiled expression, and its fault if it is none. One that is absent has other checks."""
    if not source.strip():
        return None, []
    try:
        return types.compiled(source, wanted, authorizes=authorizes, structs=structs), []
    except PolicyError as error:
        return None, [Fault("Invalid value", place, str(error), source)]
