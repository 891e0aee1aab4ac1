"""Settings of Kueue: its Configuration, and what admission checks answer.

Source  Kueue, apis/config/v1beta2; pkg/config
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from moorage.api.durations import duration_seconds
from moorage.errors import InputError

__all__ = ["NEGATIVE", "CheckAnswers", "CheckOutcome", "PodsReadyRules", "Settings", "UsageRules", "read_settings"]

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


class CheckOutcome(NamedTuple):
    """What a check answers, and after how many seconds."""

    state: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class CheckAnswers:
    """The answers of an admission check to the attempts of a workload, in turn."""

    answers: tuple[str, ...] = ("Ready",)
    delay_s: float = 0.0

    def outcome(self, attempt: int) -> CheckOutcome:
        return CheckOutcome(self.answers[min(attempt, len(self.answers) - 1)], self.delay_s)


class UsageRules(NamedTuple):
    """Admission fair sharing: how fast use is forgotten, how often it is sampled, and weights of resources (1 if absent)."""

    half_life_s: float
    sampling_s: float = 300.0
    weights: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings that change decisions."""

    fair: bool = False
    usage: UsageRules | None = None
    pods_ready: PodsReadyRules | None = None
    checks: Mapping[str, CheckAnswers] = field(default_factory=dict)


def read_settings(documents: Iterable[Mapping[str, Any]]) -> Settings:
    """Read the Configuration, if there is one, and the AdmissionChecks.

    Raises  InputError for durations and answers that cannot be read
    """
    fair, usage, pods_ready = False, None, None
    checks: dict[str, CheckAnswers] = {}
    for one in documents:
        if one.get("kind") == "Configuration":
            sharing = one.get("fairSharing")
            fair = sharing is not None and sharing.get("enable", True) is not False
            usage = _usage(one.get("admissionFairSharing"))
            pods_ready = _pods_ready(one)
        elif one.get("kind") == "AdmissionCheck":
            meta = one.get("metadata") or {}
            checks[str(meta.get("name", ""))] = _answers(meta)
    return Settings(fair, usage, pods_ready, checks)


def _usage(rules: Mapping[str, Any] | None) -> UsageRules | None:
    if rules is None:
        return None
    where = "Configuration: admissionFairSharing"
    half_s = _seconds(rules.get("usageHalfLifeTime", "0s"), f"{where}.usageHalfLifeTime")
    sampling_s = _seconds(rules.get("usageSamplingInterval", "0s"), f"{where}.usageSamplingInterval") or 300.0
    if half_s < 0:
        raise InputError(f'{where}.usageHalfLifeTime: Invalid value: "{rules["usageHalfLifeTime"]}": {NEGATIVE}')
    if sampling_s < 0:
        raise InputError(f"{where}.usageSamplingInterval: Invalid value: must be greater than 0")
    weights = rules.get("resourceWeights") or {}
    for name, weight in weights.items():
        if weight < 0:
            raise InputError(f"{where}.resourceWeights[{name}]: Invalid value: {weight}: {NEGATIVE}")
    return UsageRules(half_s, sampling_s, {str(name): float(weight) for name, weight in weights.items()})


def _pods_ready(configuration: Mapping[str, Any]) -> PodsReadyRules | None:
    rules = configuration.get("waitForPodsReady")
    old = str(configuration.get("apiVersion", "")).endswith("/v1beta1")
    if rules is None or not rules.get("enable", not old):
        return None
    where = "Configuration: waitForPodsReady"
    strategy = rules.get("requeuingStrategy") or {}
    blocks = rules.get("blockAdmission")
    limit = strategy.get("backoffLimitCount")
    return PodsReadyRules(
        _seconds(rules.get("timeout", "5m"), f"{where}.timeout"),
        old if blocks is None else bool(blocks),
        strategy.get("timestamp", "Eviction") == "Eviction",
        None if limit is None else int(limit),
        float(strategy.get("backoffBaseSeconds", 60)),
        float(strategy.get("backoffMaxSeconds", 3600)),
    )


def _answers(meta: Mapping[str, Any]) -> CheckAnswers:
    name, notes = meta.get("name", ""), meta.get("annotations") or {}
    answers = tuple(part.strip() for part in str(notes.get(_ANSWERS, "Ready")).split(","))
    if wrong := [part for part in answers if part not in _STATES]:
        raise InputError(
            f"AdmissionCheck {name}: metadata.annotations[{_ANSWERS}]: {wrong[0]!r} is no answer; use Ready, Retry or Rejected"
        )
    return CheckAnswers(answers, _seconds(notes.get(_DELAY, "0s"), f"AdmissionCheck {name}: metadata.annotations[{_DELAY}]"))


def _seconds(text: Any, where: str) -> float:
    try:
        return duration_seconds(str(text))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
