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

import msgspec

from moorage.api.core import LabelSelector
from moorage.api.durations import duration_seconds
from moorage.api.quantity import parse
from moorage.api.selectors import EVERYTHING, Selector, compile_label_selector
from moorage.basis import table_of
from moorage.basis.inputs.components import Component
from moorage.errors import InputError
from moorage.simulator.kueue.validation import with_defaults

#: Kueue's feature gates with their defaults: those of which both values are simulated, those of which only the default is, and
#: those that change nothing here; and by release what it has otherwise.
_GATES: Final[Mapping[str, Any]] = table_of("moorage.simulator.kueue", "feature_gates.toml")
#: The release that decisions follow unless the cluster runs a later one, and the one after it.
RELEASE: Final = "0.17"
NEXT: Final = "next"


def gates_of(release: str) -> frozenset[str]:
    """Return the gates that are on by default in a release, of those that are simulated."""
    return frozenset(name for name, is_on in {**_GATES["simulated"], **_GATES["releases"][release]}.items() if is_on)


#: Those of the release that is followed by default.
GATES: Final = gates_of(RELEASE)
_NANO: Final = 1_000_000_000
#: A workload is taken from another queue if the share of the asking side is not larger than the one that its side has without
#: it; or, in a second pass, smaller than the one that its side has with it.
STRATEGIES: Final = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
#: Annotations of an AdmissionCheck: how long it takes, and what it answers, in turn; the last answer stays.
_DELAY: Final = "moorage.dev/delay"
_ANSWERS: Final = "moorage.dev/answers"
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
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
class ManagedJobs:
    """Which jobs Kueue manages.

    ``all_jobs``    also those that name no queue (``manageJobsWithoutQueueName``)
    ``frameworks``  the kinds of jobs, such as ``batch/job``; None: all
    ``namespaces``  in which namespaces
    """

    all_jobs: bool = False
    frameworks: frozenset[str] | None = None
    namespaces: Selector = EVERYTHING

    def has(self, framework: str) -> bool:
        """Return whether Kueue manages a kind of jobs."""
        return self.frameworks is None or framework in self.frameworks


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings that change decisions. ``notes``: what they say that is not simulated."""

    fair: bool = False
    strategies: tuple[str, ...] = STRATEGIES
    resources: ResourceRules = field(default_factory=ResourceRules)
    usage: UsageRules | None = None
    pods_ready: PodsReadyRules | None = None
    checks: Mapping[str, CheckAnswers] = field(default_factory=dict)
    gates: frozenset[str] = GATES
    jobs: ManagedJobs = field(default_factory=ManagedJobs)
    notes: tuple[str, ...] = ()


def read_settings(documents: Iterable[Mapping[str, Any]], manager: Component | None = None, release: str = "") -> Settings:
    """Read the Configuration, if there is one, and the AdmissionChecks.

    ``manager``: the container that runs Kueue, for its release and its flag ``--feature-gates``
    Raises  InputError for fields of wrong types, and for values that cannot be read
    """
    notes: list[str] = []
    release = release or _release_of(manager, notes)
    flags = _flags(manager)
    settings, checks = Settings(gates=_gates(flags, release, notes), notes=tuple(notes)), dict[str, CheckAnswers]()
    for one in with_defaults(each for each in documents if each.get("kind") in {"Configuration", "AdmissionCheck"}):
        if one["kind"] == "AdmissionCheck":
            checks[str((one.get("metadata") or {}).get("name", ""))] = _answers(one.get("metadata") or {})
            continue
        sharing, usage = one.get("fairSharing") or {}, one.get("admissionFairSharing")
        notes = [note for note in notes if not note.startswith("Kueue's gate ")]
        gates = _gates({**flags, **(one.get("featureGates") or {})}, release, notes)
        settings = Settings(
            sharing.get("enable", False), tuple(sharing.get("preemptionStrategies", STRATEGIES)), _resources(one["resources"]),
            None if usage is None or "AdmissionFairSharing" not in gates else _usage(usage),
            _pods_ready(one.get("waitForPodsReady"), old=str(one.get("apiVersion")).endswith("/v1beta1")), gates=gates,
            jobs=_jobs(one), notes=tuple(notes),
        )  # fmt: skip
    return replace(settings, checks=checks)


def _release_of(manager: Component | None, notes: list[str]) -> str:
    """Return the release whose decisions are followed: the one that runs, or the nearest that is known."""
    version = () if manager is None else manager.version
    known = tuple(int(part) for part in RELEASE.split("."))
    if version and version[:2] < known:
        shown = ".".join(map(str, version))
        notes.append(f"Kueue {shown} runs in this cluster; decisions follow Kueue {RELEASE}")
    return NEXT if version[:2] > known else RELEASE


def _flags(manager: Component | None) -> dict[str, bool]:
    """Return the gates that the command line of Kueue sets."""
    text = None if manager is None else manager.flag("feature-gates")
    pairs = (part.partition("=") for part in (text or "").split(",") if part.strip())
    return {name.strip(): value.strip().lower() in {"true", "1", "t"} for name, _, value in pairs}


def _jobs(given: Mapping[str, Any]) -> ManagedJobs:
    integrations = given.get("integrations") or {}
    listed = integrations.get("frameworks")
    selector = given.get("managedJobsNamespaceSelector")
    if selector is None:
        own = [{"key": _NAME_LABEL, "operator": "NotIn", "values": ["kube-system", given.get("namespace") or "kueue-system"]}]
        selector = {"matchExpressions": own}
    return ManagedJobs(
        bool(given.get("manageJobsWithoutQueueName")),
        None if not listed else frozenset(map(str, (*listed, *(integrations.get("externalFrameworks") or ())))),
        compile_label_selector(msgspec.convert(selector, LabelSelector)),
    )


def _gates(given: Mapping[str, bool], release: str, notes: list[str]) -> frozenset[str]:
    """Return the simulated gates that are on; note those that are set to what is not simulated."""
    known = {name: is_on for kind in ("simulated", "fixed", "inert") for name, is_on in _GATES[kind].items()}
    for name, is_on in given.items():
        if name not in known:
            near = " or ".join(get_close_matches(name, known, 2, 0.7))
            raise InputError(
                f"Configuration: featureGates: unrecognized feature gate: {name}{near and f'; did you mean {near}?'}"
            )
        if is_on is not _GATES["fixed"].get(name, is_on):
            notes.append(f"Kueue's gate {name}={json.dumps(is_on)} is not simulated; decisions follow {json.dumps(not is_on)}")
    defaults = {**_GATES["simulated"], **_GATES["releases"][release]}
    return frozenset(name for name, is_on in {**defaults, **given}.items() if is_on and name in _GATES["simulated"])


def _resources(given: Mapping[str, Any]) -> ResourceRules:
    outputs: dict[str, tuple[Mapping[str, Fraction], bool]] = {}
    for one in given["transformations"]:
        factors = {name: Fraction(parse(factor), _NANO) for name, factor in one["outputs"].items()}
        outputs[one["input"]] = factors, one["strategy"] == "Retain"
    multipliers = {one["input"]: one["multiplyBy"] for one in given["transformations"] if one["multiplyBy"]}
    is_lenient = given["quotaCheckStrategy"] == "IgnoreUndeclared"
    return ResourceRules(tuple(given["excludeResourcePrefixes"]), outputs, multipliers, is_lenient)


def _usage(given: Mapping[str, Any]) -> UsageRules:
    half_s, sampling_s = (duration_seconds(given[name]) for name in ("usageHalfLifeTime", "usageSamplingInterval"))
    return UsageRules(half_s, sampling_s or 300.0, given["resourceWeights"])


def _pods_ready(given: Mapping[str, Any] | None, *, old: bool) -> PodsReadyRules | None:
    set_here = {name: value for name, value in (given or {}).items() if value is not None}
    if given is None or not set_here.get("enable", not old):
        return None
    retries = given["requeuingStrategy"]
    return PodsReadyRules(
        duration_seconds(given["timeout"]), set_here.get("blockAdmission", old), retries["timestamp"] == "Eviction",
        retries.get("backoffLimitCount"), retries["backoffBaseSeconds"], retries["backoffMaxSeconds"],
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
    """Return a duration of an annotation.

    Raises  InputError with its place, also if it is negative
    """
    try:
        seconds = duration_seconds(str(text))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if seconds < 0:
        raise InputError(f"{where}: {text} is negative; a duration is at least 0s")
    return seconds
