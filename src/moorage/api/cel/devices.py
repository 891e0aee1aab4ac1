"""Device selectors: expressions over one device that return whether it is suitable.

An expression sees ``device.driver``, ``device.allowMultipleAllocations``, ``device.attributes["domain"].name`` and
``device.capacity["domain"].name``. A domain for which the device has no entries is an empty map, not an error.

Source  dynamic-resource-allocation/cel/compile.go
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from moorage.api.cel.bounds import MAX_EFFORT, CompileError, EvalError
from moorage.api.cel.call_estimates import DeclaredSize, SizeLookup
from moorage.api.cel.frame import EFFORT_PER_COST
from moorage.api.cel.functions.quantities import Quantity
from moorage.api.cel.functions.semver import SemverError, parse_semver
from moorage.api.cel.list_attributes import Lists
from moorage.api.cel.program import COST_LIMIT, Program, compile_expression, compile_with_estimate
from moorage.api.cel.types import ANY, BOOL, DYN, QUANTITY, STRING, Type, map_of
from moorage.api.cel.values import EMPTY_MAP, Map, Value, type_name
from moorage.api.quantity import QuantityError

_DEVICE: Final = Type("struct", "kubernetes.DRADevice")


class Version(NamedTuple):
    """A version as text; expressions see it as a semantic version."""

    text: str


class DeviceFacts(NamedTuple):
    """A device as expressions see it. ``attributes``: name → bool, int, str, ``Version``, or a tuple of them; None for an
    attribute without a supported value. ``capacity``: name → quantity as text. Names without a domain belong to the driver.
    """

    driver: str
    attributes: Mapping[str, Value]
    capacity: Mapping[str, str | int | float]
    multiple_allocations: bool = False


class CompiledSelector:
    """A compiled device selector."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def matches(self, variables: Mapping[str, Value]) -> bool:
        """Return whether the selector selects a device; ``variables`` come from ``device_variables``.

        Raises  EvalError, CostLimitError; the text is kube-scheduler's
        """
        taken, _ = self.judge(variables, COST_LIMIT)
        if isinstance(taken, EvalError):
            raise taken
        return taken

    def judge(self, variables: Mapping[str, Value], limit: int) -> tuple[bool | EvalError, int]:
        """Return whether the selector selects a device, or the error of the evaluation; and the cost or the work, if greater.

        Raises  CostLimitError
        """
        value, cost, effort = self._program.attempt(variables, limit, min(MAX_EFFORT, limit * EFFORT_PER_COST))
        if not isinstance(value, (bool, EvalError)):
            text = f"CEL result of type {type_name(value)} could not be converted to bool: {_why_no_bool(value)}"
            value = EvalError(text)
        return value, max(cost, effort // EFFORT_PER_COST)


def _why_no_bool(value: Value) -> str:
    """Return why a value is no bool, as Go words it for each type."""
    match type_name(value):
        case "int" | "uint" as name:
            return f"unsupported type conversion from '{name}' to bool"
        case "string":
            return "unsupported native conversion from string to 'bool'"
        case "double" | "bytes" as name:
            return f"type conversion error from {name.title()} to 'bool'"
        case "list" | "map" as name:
            return f"type conversion error from {name} to 'bool'"
        case name:
            return f"type conversion error from '{name.rpartition('.')[2]}' to 'bool'"


@lru_cache(maxsize=1024)
def compile_selector(expression: str, lists: Lists = Lists.UNKNOWN) -> CompiledSelector:
    """Compile a selector.

    Raises  CompileError with kube-scheduler's text
    """
    program = compile_expression(expression, {"device": _DEVICE}, _device_fields(lists), _missing(lists))
    return _selector(program, lists)


@lru_cache(maxsize=1024)
def estimated_selector_cost(expression: str, lists: Lists = Lists.UNKNOWN) -> int:
    """Compile a selector and return what it may cost at most, for a device of any size.

    Raises  CompileError with kube-apiserver's text
    """
    fields, missing = _device_fields(lists), _missing(lists)
    program, estimate = compile_with_estimate(expression, {"device": _DEVICE}, fields, missing, _DEVICE_SIZES)
    _selector(program, lists)
    return estimate


def _device_fields(lists: Lists) -> Mapping[str, Mapping[str, Type]]:
    attribute = DYN if lists is Lists.SUPPORTED else ANY
    fields = {
        "driver": STRING,
        "allowMultipleAllocations": BOOL,
        "attributes": map_of(STRING, map_of(STRING, attribute)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    }
    return {_DEVICE.name: fields}


def _missing(lists: Lists) -> frozenset[str]:
    return frozenset(["includes"]) if lists is Lists.UNKNOWN else frozenset()


def _selector(program: Program, lists: Lists) -> CompiledSelector:
    if program.type not in ((BOOL, ANY, DYN) if lists is Lists.SUPPORTED else (BOOL, ANY)):
        raise CompileError(f"must evaluate to bool or the unknown type, not {program.type}")
    return CompiledSelector(program)


def _device_sizes() -> SizeLookup:
    """Return the sizes of a device, from the limits of the Kubernetes API."""
    domain, name, value = DeclaredSize(63), DeclaredSize(32), DeclaredSize(64)
    attributes = DeclaredSize(32, items=DeclaredSize(32, items=value, others=value, keys=name), keys=domain)
    capacity = DeclaredSize(32, items=DeclaredSize(32, items=DeclaredSize(), keys=name), keys=domain)
    fields = {"driver": DeclaredSize(63), "allowMultipleAllocations": DeclaredSize(1), "attributes": attributes}
    device = DeclaredSize(fields={**fields, "capacity": capacity})
    return lambda path: device.at(path[1:]) if path[0] == "device" else None


_DEVICE_SIZES: Final = _device_sizes()


def device_variables(device: DeviceFacts, lists: Lists = Lists.UNKNOWN) -> Mapping[str, Value]:
    """Return a device as the variables of an expression.

    Raises  EvalError for an attribute without a supported value, or with an invalid one
    """
    attributes: dict[str, dict[str, Value]] = {}
    for name, value in device.attributes.items():
        domain, name_there = _qualified(name, device.driver)
        attributes.setdefault(domain, {})[name_there] = _attribute(name, value, lists)
    capacity: dict[str, dict[str, Value]] = {}
    for name, amount in device.capacity.items():
        domain, name_there = _qualified(name, device.driver)
        try:
            capacity.setdefault(domain, {})[name_there] = Quantity.parse(amount)
        except QuantityError as error:
            raise EvalError(f"capacity {name}: {error}") from None
    facts = {
        "driver": device.driver,
        "allowMultipleAllocations": device.multiple_allocations,
        "attributes": _by_domain(attributes),
        "capacity": _by_domain(capacity),
    }
    return {"device": Map(facts.items())}


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, name_there = name.partition("/")
    return (domain, name_there) if slash else (driver, name)


def _by_domain(found: Mapping[str, Mapping[str, Value]]) -> Map:
    return Map(((domain, Map(named.items())) for domain, named in found.items()), default=EMPTY_MAP)


def _attribute(name: str, value: Value, lists: Lists) -> Value:
    is_list = isinstance(value, tuple) and not isinstance(value, Version)
    if value is None or (is_list and lists is not Lists.SUPPORTED):
        raise EvalError(f"attribute {name}: unsupported attribute value")
    if isinstance(value, Version):
        return _version(name, value)
    if isinstance(value, tuple):
        return tuple([_version(name, v) if isinstance(v, Version) else v for v in value])
    return value


def _version(name: str, version: Version) -> Value:
    try:
        return parse_semver(version.text)
    except SemverError as error:
        raise EvalError(f"attribute {name}: parse semantic version: {error}") from None
