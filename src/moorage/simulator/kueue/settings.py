"""Settings of Kueue: its Configuration, and what admission checks answer.

Source  Kueue, apis/config/v1beta2; pkg/config
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fractions import Fraction
from math import ceil
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from msgspec import Struct

from moorage.api.decode import decode
from moorage.api.durations import duration_seconds
from moorage.api.quantity import parse
from moorage.basis import table_of
from moorage.errors import InputError

#: Kueue's feature gates with their defaults: those of which both values are simulated, those of which only the default is, and
#: those that change nothing here.
_GATES: Final[Mapping[str, Mapping[str, bool]]] = table_of("moorage.simulator.kueue", "feature_gates.toml")
#: The gates that are on by default, of those that are simulated.
GATES: Final = frozenset(name for name, is_on in _GATES["simulated"].items() if is_on)
_NANO: Final = 1_000_000_000
#: A workload is taken from another queue if the share of the asking side is not larger than the one that its side has without
#: it; or, in a second pass, smaller than the one that its side has with it. The lists that Kueue knows.
STRATEGIES: Final = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
_STRATEGIES: Final = (STRATEGIES[:1], STRATEGIES[1:], STRATEGIES)
NEGATIVE: Final = "must be greater than or equal to 0"
#: Annotations of an AdmissionCheck: how long it takes, and what it answers, in turn; the last answer stays.
_DELAY: Final = "moorage.dev/delay"
_ANSWERS: Final = "moorage.dev/answers"
_STATES: Final = frozenset({"Ready", "Retry", "Rejected"})


@dataclass(frozen=True, slots=True)
class PodsReadyRules:
    """waitForPodsReady. ``limit``: how often a workload is queued again; None: without end."""

    timeout_s: float = 300.0
    blocks: bool = False
    by_eviction: bool = True
    limit: int | None = None
    base_s: float = 60.0
    most_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class CheckAnswers:
    """The answers of an admission check to the attempts of a workload, in turn, each after so many seconds."""

    answers: tuple[str, ...] = ("Ready",)
    delay_s: float = 0.0

    def answer(self, attempt: int) -> str:
        return self.answers[min(attempt, len(self.answers) - 1)]


class UsageRules(NamedTuple):
    """Admission fair sharing: how fast use is forgotten, how often it is sampled, and weights of resources (1 if absent)."""

    half_life_s: float
    sampling_s: float = 300.0
    weights: Mapping[str, float] = MappingProxyType({})


class ResourceRules(NamedTuple):
    """Which resources of pods count for quota, and as what.

    ``excluded``    prefixes of names that do not count
    ``outputs``     for a resource, what one unit of it counts as, and whether it counts itself, too
    ``multipliers`` for a resource, the one by whose amount its outputs are multiplied
    ``lenient``     resources without quota in a ClusterQueue do not count there
    """

    excluded: tuple[str, ...] = ()
    outputs: Mapping[str, tuple[Mapping[str, Fraction], bool]] = MappingProxyType({})
    multipliers: Mapping[str, str] = MappingProxyType({})
    lenient: bool = False

    def counted(self, requests: Mapping[str, int]) -> Mapping[str, int]:
        """Return what the requests of a pod count as, in base units."""
        kept = {name: amount for name, amount in requests.items() if not name.startswith(self.excluded)}
        if self.outputs.keys().isdisjoint(kept):
            return kept
        found: dict[str, int] = {}
        made: dict[str, Fraction] = {}
        for name, amount in kept.items():
            outputs, retains = self.outputs.get(name, ({}, True))
            if retains:
                found[name] = amount
            units = Fraction(amount, _base(name))
            if (by := self.multipliers.get(name)) in kept:
                units *= Fraction(kept[by], _base(by))
            for output, factor in outputs.items():
                made[output] = made.get(output, Fraction(0)) + units * factor
        for name, units in made.items():
            found[name] = found.get(name, 0) + max(0, ceil(units * _base(name)))
        return found


def _base(resource: str) -> int:
    return 1000 if resource == "cpu" else 1


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings that change decisions."""

    fair: bool = False
    strategies: tuple[str, ...] = STRATEGIES
    resources: ResourceRules = field(default_factory=ResourceRules)
    usage: UsageRules | None = None
    pods_ready: PodsReadyRules | None = None
    checks: Mapping[str, CheckAnswers] = field(default_factory=dict)
    gates: frozenset[str] = GATES


class _Sharing(Struct, frozen=True, rename="camel"):
    enable: bool = True
    preemption_strategies: tuple[str, ...] = STRATEGIES


class _Usage(Struct, frozen=True, rename="camel"):
    usage_half_life_time: str = "0s"
    usage_sampling_interval: str = "0s"
    resource_weights: dict[str, float] = {}


class _Requeuing(Struct, frozen=True, rename="camel"):
    timestamp: str = "Eviction"
    backoff_limit_count: int | None = None
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 3600


class _PodsReady(Struct, frozen=True, rename="camel"):
    enable: bool | None = None
    timeout: str = "5m"
    block_admission: bool | None = None
    requeuing_strategy: _Requeuing | None = None


class _Transformation(Struct, frozen=True, rename="camel"):
    input: str
    strategy: str = "Retain"
    multiply_by: str = ""
    outputs: dict[str, str | int | float] = {}


class _Resources(Struct, frozen=True, rename="camel"):
    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[_Transformation, ...] = ()
    quota_check_strategy: str = "BlockUndeclared"


class _Configuration(Struct, frozen=True, rename="camel"):
    fair_sharing: _Sharing | None = None
    admission_fair_sharing: _Usage | None = None
    wait_for_pods_ready: _PodsReady | None = None
    resources: _Resources | None = None
    feature_gates: dict[str, bool] = {}


def read_settings(documents: Iterable[Mapping[str, Any]]) -> Settings:
    """Read the Configuration, if there is one, and the AdmissionChecks.

    Raises  InputError for fields of wrong types, and for values that cannot be read
    """
    settings, checks = Settings(), dict[str, CheckAnswers]()
    for one in documents:
        if one.get("kind") == "Configuration":
            read, old = decode(dict(one), _Configuration, "Configuration"), str(one.get("apiVersion", "")).endswith("/v1beta1")
            sharing = read.fair_sharing or _Sharing(enable=False)
            strategies = sharing.preemption_strategies
            if strategies not in _STRATEGIES:
                known = ", ".join(json.dumps(",".join(one)) for one in _STRATEGIES)
                where = "Configuration: fairSharing.preemptionStrategies"
                raise InputError(f"{where}: Unsupported value: {json.dumps(strategies)}: supported values: {known}")
            rules = _resources(read.resources or _Resources())
            usage, ready = _usage(read.admission_fair_sharing), _pods_ready(read.wait_for_pods_ready, old)
            gates = _gates(read.feature_gates)
            usage = usage if "AdmissionFairSharing" in gates else None
            settings = Settings(sharing.enable, strategies, rules, usage, ready, gates=gates)
        elif one.get("kind") == "AdmissionCheck":
            meta = one.get("metadata") or {}
            checks[str(meta.get("name", ""))] = _answers(meta)
    return replace(settings, checks=checks)


def _gates(given: Mapping[str, bool]) -> frozenset[str]:
    """Return the simulated gates that are on."""
    known = {name: is_on for gates in _GATES.values() for name, is_on in gates.items()}
    for name, is_on in given.items():
        if name not in known:
            near = " or ".join(get_close_matches(name, known, 2, 0.7))
            raise InputError(
                f"Configuration: featureGates: unrecognized feature gate: {name}{near and f'; did you mean {near}?'}"
            )
        if is_on is not _GATES["fixed"].get(name, is_on):
            where = f"Configuration: featureGates.{name}"
            raise InputError(f"{where}: {json.dumps(is_on)} is not simulated; decisions follow {json.dumps(not is_on)}")
    return frozenset(name for name, is_on in {**_GATES["simulated"], **given}.items() if is_on and name in _GATES["simulated"])


def _resources(given: _Resources) -> ResourceRules:
    where, strategy = "Configuration: resources", given.quota_check_strategy
    outputs: dict[str, tuple[Mapping[str, Fraction], bool]] = {}
    for at, one in enumerate(given.transformations):
        path = f"{where}.transformations[{at}]"
        _one_of(one.strategy, ("Retain", "Replace"), f"{path}.strategy")
        if one.input in outputs:
            raise InputError(f'{path}.input: Duplicate value: "{one.input}"')
        factors = {name: Fraction(parse(factor), _NANO) for name, factor in one.outputs.items()}
        outputs[one.input] = factors, one.strategy == "Retain"
    _one_of(strategy, ("IgnoreUndeclared", "BlockUndeclared"), f"{where}.quotaCheckStrategy")
    if strategy == "IgnoreUndeclared" and given.exclude_resource_prefixes:
        text = "excludeResourcePrefixes is not allowed when quotaCheckStrategy is IgnoreUndeclared"
        raise InputError(f'{where}.quotaCheckStrategy: Invalid value: "{strategy}": {text}')
    multipliers = {one.input: one.multiply_by for one in given.transformations if one.multiply_by}
    return ResourceRules(given.exclude_resource_prefixes, outputs, multipliers, strategy == "IgnoreUndeclared")


def _one_of(value: str, known: tuple[str, ...], where: str) -> None:
    if value not in known:
        raise InputError(f'{where}: Unsupported value: "{value}": supported values: {", ".join(map(json.dumps, known))}')


def _usage(rules: _Usage | None) -> UsageRules | None:
    if rules is None:
        return None
    where = "Configuration: admissionFairSharing"
    half_s = seconds_at(rules.usage_half_life_time, f"{where}.usageHalfLifeTime")
    sampling_s = seconds_at(rules.usage_sampling_interval, f"{where}.usageSamplingInterval") or 300.0
    if half_s < 0:
        raise InputError(f'{where}.usageHalfLifeTime: Invalid value: "{rules.usage_half_life_time}": {NEGATIVE}')
    if sampling_s < 0:
        raise InputError(f"{where}.usageSamplingInterval: Invalid value: must be greater than 0")
    for name, weight in rules.resource_weights.items():
        if weight < 0:
            raise InputError(f"{where}.resourceWeights[{name}]: Invalid value: {weight}: {NEGATIVE}")
    return UsageRules(half_s, sampling_s, rules.resource_weights)


def _pods_ready(rules: _PodsReady | None, old: bool) -> PodsReadyRules | None:
    if rules is None or not (not old if rules.enable is None else rules.enable):
        return None
    strategy, blocks = rules.requeuing_strategy or _Requeuing(), rules.block_admission
    return PodsReadyRules(
        seconds_at(rules.timeout, "Configuration: waitForPodsReady.timeout"), old if blocks is None else blocks,
        strategy.timestamp == "Eviction", strategy.backoff_limit_count, strategy.backoff_base_seconds,
        strategy.backoff_max_seconds,
    )  # fmt: skip


def _answers(meta: Mapping[str, Any]) -> CheckAnswers:
    name, notes = meta.get("name", ""), meta.get("annotations") or {}
    answers = tuple(part.strip() for part in str(notes.get(_ANSWERS, "Ready")).split(","))
    if wrong := [part for part in answers if part not in _STATES]:
        raise InputError(
            f"AdmissionCheck {name}: metadata.annotations[{_ANSWERS}]: {wrong[0]!r} is no answer; use Ready, Retry or Rejected"
        )
    return CheckAnswers(answers, seconds_at(notes.get(_DELAY, "0s"), f"AdmissionCheck {name}: metadata.annotations[{_DELAY}]"))


def seconds_at(text: Any, where: str) -> float:
    """Return a duration of an object or an annotation.

    Raises  InputError with its place
    """
    try:
        return duration_seconds(str(text))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
