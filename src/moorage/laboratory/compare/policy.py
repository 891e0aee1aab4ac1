"""Policies: rules over questions, such as "no pod pending" or "survives any zone", checked for a change of a cluster.

A rule looks at the cluster after the change, and some also at the cluster before it. Every verdict comes from a run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from moorage.api.core import LimitRange, Node, Pod, ReplicationController, ResourceQuota, Service
from moorage.api.quantity import milli_value
from moorage.api.reading.manifests import read_first_yaml
from moorage.api.selectors import Selector, SelectorError, compile_label_selector, parse_selector
from moorage.api.workloads import PodDisruptionBudget, PodDisruptionBudgetStatus, ReplicaSet, StatefulSet
from moorage.basis.printable import counted, some
from moorage.errors import InputError
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.cluster_questions import planned_pods
from moorage.laboratory.compare.measured_run import measure_run
from moorage.laboratory.compare.moved_pods import new_pending
from moorage.laboratory.compare.paired_metrics import paired_metrics
from moorage.laboratory.compare.run_inputs import input_of_runs
from moorage.laboratory.plan.consolidation import types_of_nodes
from moorage.laboratory.plan.node_types import NodeType, offers_of_types, read_types
from moorage.laboratory.plan.plan import PlanQuestion, plan_of
from moorage.laboratory.surroundings import ListedObjects
from moorage.laboratory.survive.survival_question import SurvivalAsked, survival_report
from moorage.report.answer import AnswerRequest, Stopped
from moorage.report.gates import evaluate, parse_gate
from moorage.report.outcome import RefusedPods
from moorage.report.policy_report import PolicyReport, RuleResult, policy_summary
from moorage.report.run_values import MeasuredRun, UnplacedPod
from moorage.report.survival_report import Survival
from moorage.simulator.allowed_disruptions import BudgetBook, BudgetFigures, WatchedBudget
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_run import workload_names
from moorage.simulator.pod_creation import create_pods
from moorage.simulator.quotas import QuotaLedger, is_new
from moorage.simulator.simulate import Options

API_VERSION: Final = "moorage.dev/v1"
#: The share of the time that is left which one question may take.
_SHARE: Final = 0.5
#: What people call the values of a label.
_DOMAINS: Final = {"topology.kubernetes.io/zone": "zones", "kubernetes.io/hostname": "nodes"}
#: More than the rounding of a sum of prices.
_ROUNDING: Final = 1e-9
_AT_MOST: Final = re.compile(r"\+(\d+(?:\.\d+)?)%")


class NoPendingRule(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """No pod stays pending; with ``new_only``, none that was not pending before. ``selector`` limits the pods.

    ``may_match_none``: a selector that matches no pod is no mistake
    """

    new_only: bool = False
    selector: str = ""
    may_match_none: bool = False


class SurvivesRule(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Every loss over ``node``, ``zone`` or a label is survived; with ``new_only``, every one that was survived before."""

    over: str = "node"
    new_only: bool = False


class SpreadRule(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The pods of each workload with pods that ``selector`` matches stand in at least so many values of a node label."""

    at_least: int
    over: str = "topology.kubernetes.io/zone"
    selector: str = ""
    kind: str = ""
    may_match_none: bool = False


class BudgetsRule(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """No disruption budget of pods is lost, and each lets a pod go when all are ready; ``new_only``: if it did before."""

    new_only: bool = False


class QuotasRule(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """No quota is used beyond its limit, and each has so many percent left; ``new_only``: if it had before."""

    headroom: float = 0.0
    new_only: bool = False


class CostLimit(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What the nodes cost, with those to buy for pending pods: ``+5%`` of the cost before, or an amount."""

    at_most: str | float


class _Rule(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One rule: exactly one of its kinds is set."""

    name: str = ""
    level: Literal["error", "warning"] = "error"
    no_pending: NoPendingRule | None = None
    survives: SurvivesRule | None = None
    spread: SpreadRule | None = None
    cost: CostLimit | None = None
    budgets: BudgetsRule | None = None
    quotas: QuotasRule | None = None
    metric: str | None = None

    @property
    def kind(self) -> str:
        """The kind, as the policy names it.

        Raises  InputError unless there is exactly one
        """
        set_ = [name for name in _KINDS if getattr(self, name) is not None]
        if len(set_) != 1:
            known = ", ".join(map(_camel, _KINDS))
            raise InputError(f"a rule has one of {known}; found {', '.join(map(_camel, set_)) or 'none'}")
        return set_[0]

    @property
    def asked(self) -> Any:
        """What the rule asks, in the form of its kind."""
        return getattr(self, self.kind)


#: Kind of rule → how many searches it makes, each of which may take the usual time limit.
_EFFORT: Final = {"survives": 3, "cost": 4}
_KINDS: Final = ("no_pending", "survives", "spread", "cost", "budgets", "quotas", "metric")
_Check: TypeAlias = Callable[["_Checks", Any], tuple[bool | None, str, Sequence[str]]]


class _PolicyFile(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A policy as it is written: ``types`` may be the name of a file."""

    api_version: Literal["moorage.dev/v1"]
    kind: Literal["CheckPolicy"]
    rules: tuple[_Rule, ...]
    types: str | list[dict[str, Any]] = ""
    time_limit_seconds: float | None = None
    undecided: Literal["report", "pass", "fail"] = "report"


class CheckPolicy(Struct, frozen=True):
    """A policy. ``types``: node types with prices, or the file that has them; only rules on cost need them.

    ``time_limit_s``  for all rules; None: by their kinds and the size of the cluster
    ``undecided``     what a rule counts as that could not be decided in time
    """

    rules: tuple[_Rule, ...]
    types: Path | list[dict[str, Any]] = []
    time_limit_s: float | None = None
    undecided: Literal["report", "pass", "fail"] = "report"

    @property
    def effort(self) -> int:
        """How many usual time limits the rules need: searches of losses and of nodes to buy run for both clusters."""
        return max(1, sum(_EFFORT.get(rule.kind, 0) for rule in self.rules))


#: Makes a file of the name that a field of a policy gives, or refuses to; called with the policy's path, the name, the field.
FileOf: TypeAlias = Callable[[str, str, str], Path]


def _no_file(where: str, name: str, field: str) -> Path:
    raise InputError(f"{field}: expected a list of node types, found a text")


def read_policy(text: bytes, where: str, file_of: FileOf = _no_file) -> CheckPolicy:
    """Read a policy, a YAML document. Only ``file_of`` makes a file of a name in it; without it a policy names no file.

    Raises  InputError that names the field
    """
    try:
        policy = msgspec.convert(read_first_yaml(text, where), _PolicyFile)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}") from None
    if not policy.rules:
        raise InputError(f"{where}: rules: a policy needs at least one rule")
    for at, rule in enumerate(policy.rules):
        try:
            asked = rule.asked
            parse_selector(getattr(asked, "selector", ""))
            if isinstance(asked, str):
                parse_gate(asked)
            if isinstance(asked, SpreadRule) and asked.at_least < 1:
                raise InputError(f"spread.atLeast: {asked.at_least} is less than 1")
            if isinstance(asked, CostLimit):
                if not policy.types:
                    raise InputError("cost needs types: the node types with their prices")
                if isinstance(asked.at_most, str) and not _AT_MOST.fullmatch(asked.at_most):
                    raise InputError(f"cost.atMost: {asked.at_most!r} is no limit; write +5% or an amount")
        except (InputError, SelectorError) as error:
            raise InputError(f"{where}: rules[{at}]: {error}") from None
    try:
        types = _types_of(policy.types, where, file_of)
        return CheckPolicy(policy.rules, types, policy.time_limit_seconds, policy.undecided)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _types_of(given: str | list[dict[str, Any]], where: str, file_of: FileOf) -> Path | list[dict[str, Any]]:
    if isinstance(given, list):
        return given
    return file_of(where, given, "types") if given else []


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


@dataclass
class _Side:
    """The cluster before or after the change, and what was found out about it."""

    given: ClusterInput
    options: Options
    survivals: dict[str, Survival] = field(default_factory=dict)
    refused: tuple[RefusedPods, ...] = ()

    @property
    def cluster(self) -> Cluster:
        """A new cluster: a rule that runs it, or buys nodes, changes the figures of no other rule."""
        return Cluster(self.given, self.options)

    @cached_property
    def placed(self) -> Cluster:
        """The cluster after the pending pods were placed."""
        cluster = self.cluster
        cluster.run()
        return cluster

    @cached_property
    def measured(self) -> MeasuredRun:
        cluster = self.cluster
        self.refused = cluster.refused
        return measure_run(input_of_runs(cluster), self.options)

    @cached_property
    def pending(self) -> tuple[UnplacedPod, ...]:
        """The pods that stay pending, and those that the API server does not create."""
        pending = self.measured.pending
        missing = [UnplacedPod(key, one.workload, one.message) for one in self.refused for key in one.keys]
        return (*pending, *missing)

    def survival(self, over: str, request: AnswerRequest, budget: TimeBudget) -> Survival:
        if over not in self.survivals:
            self.survivals[over] = survival_report(self.cluster, request, SurvivalAsked(over, fix_probes=0, budget=budget))
        return self.survivals[over]


#: Fields of metadata in which a manifest differs from the object that was made from it, and that no decision depends on.
_APPLIED: Final[Mapping[str, Any]] = {"creation_timestamp": None, "resource_version": "", "uid": ""}
#: Kinds of which scheduling reads selectors only.
_SELECTING: Final = (ReplicaSet, ReplicationController, Service, StatefulSet)


def schedules_alike(before: ClusterInput, after: ClusterInput, options: Options) -> bool:
    """Return whether two clusters are the same for scheduling: the same pods, nodes and other objects that it reads.

    A manifest of an object that does not change has no status, uid or time; it stands for the object as it is.
    """
    return _scheduled(before, options) == _scheduled(after, options)


def _scheduled(given: ClusterInput, options: Options) -> dict[tuple[str, str], Any]:
    """Return what scheduling reads of a cluster, by kind and key."""
    found: dict[tuple[str, str], Any] = {}
    for obj in Cluster(given, options).simulation_objects():
        kept: Any = obj
        if isinstance(obj, _SELECTING):
            kept = obj.spec.selector
        elif isinstance(obj, PodDisruptionBudget):
            kept = obj.spec
        elif not isinstance(obj, Pod | Node):
            kept = replace(obj, metadata=replace(obj.metadata, **_APPLIED))
        found[type(obj).__name__, obj.key] = kept
    limits: tuple[ResourceQuota | LimitRange, ...] = (*given.resource_quotas, *given.limit_ranges)
    for limit in limits:
        found[type(limit).__name__, limit.key] = limit.spec
    return found


def check_policy(
    policy: CheckPolicy, where: str, before: ClusterInput | None, after: ClusterInput, options: Options,
    request: AnswerRequest, budget: TimeBudget, progress: Callable[[str], None] = lambda _: None,
) -> PolicyReport:  # fmt: skip
    """Return which rules hold for a cluster after a change. ``before`` is None if nothing changes.

    Raises  InputError for a rule that cannot be checked
    """
    now = _Side(after, options)
    earlier = now if before is None or schedules_alike(before, after, options) else _Side(before, options)
    checks = _Checks(policy, now, earlier, request, budget)
    results = []
    for at, rule in enumerate(policy.rules):
        name = rule.name or _name_of(rule)
        progress(f"rule {at + 1} of {len(policy.rules)}: {name} …")
        try:
            holds, text, findings = _CHECKS[rule.kind](checks, rule.asked)
            if holds is None and policy.undecided != "report":
                holds, text = policy.undecided == "pass", f"{text}; undecided, which this policy lets {policy.undecided}"
        except InputError as error:
            raise InputError(f"{where}: rules[{at}] ({name}): {error}") from None
        results.append(RuleResult(name, _camel(rule.kind), holds, text, tuple(findings), rule.level))
    rules = tuple(results)
    stopped = next((one.stopped for one in now.survivals.values() if one.stopped is not None), checks.stopped)
    pending = now.pending
    new = new_pending(earlier.pending, pending)
    return PolicyReport(
        request=request, summary=policy_summary(rules), rules=rules, policy=where, stopped=stopped, pending=pending,
        new_pending=tuple(new),
    )  # fmt: skip


def _name_of(rule: _Rule) -> str:
    asked = rule.asked
    match asked:
        case NoPendingRule():
            return "no new pending pod" if asked.new_only else "no pending pod"
        case SurvivesRule():
            return f"no new single point of failure over {asked.over}" if asked.new_only else f"survives any {asked.over}"
        case SpreadRule():
            domains = _DOMAINS.get(asked.over, f"values of {asked.over}")
            return f"{asked.selector or 'every workload'} in {asked.at_least} {domains}"
        case BudgetsRule():
            return "no budget lost or too tight"
        case QuotasRule():
            return f"quotas have {asked.headroom:g}% left" if asked.headroom else "no quota is exceeded"
        case CostLimit():
            return f"cost at most {asked.at_most}"
    return str(asked)


def _reasons(pods: Iterable[UnplacedPod]) -> list[str]:
    """Return a line for the pending pods of a workload with one reason, and for each other pod."""
    groups: dict[tuple[str, str], list[UnplacedPod]] = {}
    for one in pods:
        owner = f"{one.pod.partition('/')[0]}/{one.workload}" if one.workload else one.pod
        groups.setdefault((owner, one.message.partition(". ")[0] or "it was not tried"), []).append(one)
    return [
        f"{owner}: {counted(len(held), 'pod')}: {why}" if len(held) > 1 else f"{held[0].pod}: {why}"
        for (owner, why), held in groups.items()
    ]


def _budgets(side: _Side, budgets: Sequence[PodDisruptionBudget] | None = None) -> dict[str, BudgetFigures]:
    """Return what disruption budgets, those of a side, ask for when all pods that they cover are ready, by their keys."""
    cluster = side.placed
    pods, around = list(cluster.simulation.pods.values()), ListedObjects(cluster.objects())
    bare = [
        replace(one, status=PodDisruptionBudgetStatus())
        for one in (side.given.pod_disruption_budgets if budgets is None else budgets)
    ]
    book = BudgetBook(bare, around.find, ())
    found = {}
    for budget in bare:
        watched = WatchedBudget(budget, compile_label_selector(budget.spec.selector))
        found[budget.key] = book.figures(watched, [pod for pod in pods if watched.covers(pod)], lambda pod: True)
    return found


def _quotas(side: _Side) -> dict[str, tuple[float, float]]:
    """Return the use and the limit of each resource of each quota, with all pods of workloads."""
    created = create_pods(replace_fields(side.given, resource_quotas=()), quota=False).cluster
    ledger, found = QuotaLedger.of(replace_fields(created, resource_quotas=side.given.resource_quotas)), {}
    for pod in filter(is_new, created.pods):
        ledger.count(pod)
    for document in ledger.usage():
        key = f"{document['metadata']['namespace']}/{document['metadata']['name']}"
        status = document["status"]
        for name, hard in (status.get("hard") or {}).items():
            used = (status.get("used") or {}).get(name, "0")
            found[f"{key} {name}"] = (milli_value(used) / 1000, milli_value(hard) / 1000)
    return found


@dataclass
class _Checks:
    """Checks rules of each kind. Each returns whether the rule holds, why, and what breaks it."""

    policy: CheckPolicy
    now: _Side
    earlier: _Side
    request: AnswerRequest
    budget: TimeBudget
    #: How a search for nodes to buy ended early.
    stopped: Stopped | None = None

    def no_pending(self, asked: NoPendingRule) -> tuple[bool | None, str, Sequence[str]]:
        """Check that no pod stays pending."""
        found = list(self.now.pending)
        if asked.new_only:
            found = new_pending(self.earlier.pending, found)
        if asked.selector:
            selector = parse_selector(asked.selector)
            self._check_selector(selector, asked)
            found = [one for one in found if self._matches(one, selector)]
        what = "new pending pod" if asked.new_only else "pending pod"
        return (
            not found,
            counted(len(found), what),
            _reasons(found),
        )

    def _check_selector(self, selector: Selector, asked: NoPendingRule | SpreadRule) -> None:
        """Refuse a selector that matches no pod before and after the change: a misspelt one would always hold.

        Raises  InputError
        """
        sides = (self.now, self.earlier)
        pods: Iterable[Any] = (one for side in sides for one in (*side.placed.simulation.pods.values(), *side.refused))
        labels = (one.labels for one in pods)
        if asked.selector and not asked.may_match_none and not any(map(selector.matches, labels)):
            raise InputError(f"selector {asked.selector!r} matches no pod; mayMatchNone: true allows that")

    def _matches(self, one: UnplacedPod, selector: Selector) -> bool:
        namespace, _, name = one.pod.partition("/")
        pods = (pod for pod in self._pods if (pod.namespace, pod.name) == (namespace, name))
        missing = (refused.labels for refused in self.now.refused if one.pod in refused.keys)
        return any(map(selector.matches, (*(pod.labels for pod in pods), *missing)))

    @cached_property
    def _pods(self) -> list[Any]:
        return list(self.now.placed.simulation.pods.values())

    def survives(self, asked: SurvivesRule) -> tuple[bool | None, str, Sequence[str]]:
        """Check that every loss is survived, or every one that was survived before."""
        found = self.now.survival(asked.over, self.request, self.budget.part(_SHARE))
        bad = {loss.lost: loss for loss in found.failures if loss.pending}
        unknown = found.not_run
        if asked.new_only:
            earlier = self.earlier.survival(asked.over, self.request, self.budget.part(_SHARE))
            before = {loss.lost: loss.pending for loss in earlier.failures}
            unknown += sum(name not in before for name in bad)
            bad = {name: loss for name, loss in bad.items() if not before.get(name, True)}
        lines = [f"{name}: {counted(len(loss.pending), 'pod')} pending: {some(loss.pending)}" for name, loss in bad.items()]
        holds = False if bad else None if unknown else True
        left = f"; {counted(unknown, 'loss', 'losses')} not run" if unknown else ""
        return holds, f"{counted(len(bad), 'loss', 'losses')} of {len(found.failures):,} leave pods pending{left}", lines

    def spread(self, asked: SpreadRule) -> tuple[bool | None, str, Sequence[str]]:
        """Check in how many domains the pods of each workload stand."""
        selector = parse_selector(asked.selector)
        self._check_selector(selector, asked)
        nodes = {node.name: node.labels.get(asked.over) for node in self.now.placed.snapshot.table.nodes}
        names = workload_names(self.now.placed.input())
        domains: dict[str, set[str]] = {}
        for pod in self._pods:
            owner = names.get(pod.uid, "")
            if owner and selector.matches(pod.labels) and (not asked.kind or owner.partition("/")[0] == asked.kind):
                held = domains.setdefault(f"{pod.namespace}/{owner}", set())
                value = nodes.get(pod.spec.node_name)
                held |= {value} if value else set()
        bad = [f"{name}: {len(held)} ({', '.join(sorted(held)) or 'none'})" for name, held in sorted(domains.items())
               if len(held) < asked.at_least]  # fmt: skip
        return not bad, f"{len(bad)} of {counted(len(domains), 'workload')} in fewer than {asked.at_least}", bad

    def cost(self, asked: CostLimit) -> tuple[bool | None, str, Sequence[str]]:
        """Check what the nodes cost, with those to buy for pending pods as far as these types can place them."""
        after, findings = self._cost_of(self.now)
        limit, text = asked.at_most, f"{after:g}"
        if isinstance(limit, str):
            found = _AT_MOST.fullmatch(limit)
            assert found is not None
            before = after if self.earlier is self.now else self._cost_of(self.earlier)[0]
            limit, text = before * (1 + float(found[1]) / 100), f"{before:g} before, {after:g} after"
        if self.stopped is not None and not (self.earlier is self.now and limit >= after):
            return None, f"{text}, at most {limit:g}; the search for nodes to buy ended at the time limit", findings
        return after <= limit + _ROUNDING, f"{text}, at most {limit:g}", findings

    def _cost_of(self, side: _Side) -> tuple[float, list[str]]:
        types, cluster = self._types, side.cluster
        nodes = cluster.snapshot.table.nodes
        known = types_of_nodes(nodes, list(offers_of_types(types, nodes)))
        findings = [f"{node.name}: of no type, counted as 0" for node in nodes if node.name not in known]
        held = sum(offer.type.price for offer in known.values())
        pods = planned_pods(cluster, None)
        if not pods:
            return held, findings
        plan = plan_of(cluster, self.request, PlanQuestion(pods, types, self.budget.part()))
        self.stopped = self.stopped or plan.stopped
        if plan.staying:
            findings.append(f"{counted(plan.staying, 'pod')} pending with any number of these nodes")
        bought = ", ".join(f"{count} {name}" for name, count in plan.nodes.items() if count)
        return held + (plan.cost or 0.0), findings + ([f"to buy: {bought}"] if bought else [])

    @cached_property
    def _types(self) -> tuple[NodeType, ...]:
        return tuple(read_types(self.policy.types))

    def budgets(self, asked: BudgetsRule) -> tuple[bool | None, str, Sequence[str]]:
        """Check that budgets stay, and that each allows a disruption when all of its pods are ready."""
        now, before = _budgets(self.now), _budgets(self.earlier)
        lost = _budgets(self.now, [one for one in self.earlier.given.pod_disruption_budgets if one.key not in now])
        bad = [f"{key}: lost; it covered {counted(figures.healthy, 'pod')}" for key, figures in lost.items() if figures.healthy]
        for key, figures in now.items():
            tight = figures.expected > 0 and (bool(figures.fault) or figures.desired >= figures.expected)
            held = before.get(key)
            was_tight = held is not None and held.expected > 0 and held.desired >= held.expected
            if tight and not (asked.new_only and was_tight):
                why = figures.fault or f"{figures.desired} of {counted(figures.expected, 'pod')} must stay, so none may go"
                bad.append(f"{key}: {why}")
        return not bad, f"{len(bad)} of {counted(len(now | before), 'budget')} lost or too tight", bad

    def quotas(self, asked: QuotasRule) -> tuple[bool | None, str, Sequence[str]]:
        """Check how much of each quota is left, with the pods of workloads."""
        now, before = _quotas(self.now), _quotas(self.earlier)
        short = [name for name, (used, hard) in now.items() if used > hard * (1 - asked.headroom / 100)]
        if asked.new_only:
            short = [one for one in short if one not in before or before[one][0] <= before[one][1] * (1 - asked.headroom / 100)]
        bad = [f"{name}: {now[name][0]:g} of {now[name][1]:g} used" for name in short]
        return not bad, f"{len(bad)} of {counted(len(now), 'limit')} of quotas beyond", bad

    def metric(self, asked: str) -> tuple[bool | None, str, Sequence[str]]:
        """Check a gate on a metric of the run."""
        metrics = paired_metrics((self.earlier.measured,), (self.now.measured,))
        result = evaluate(parse_gate(asked), metrics)
        return result.passed, result.text, ()


_CHECKS: Final[Mapping[str, _Check]] = {
    "no_pending": _Checks.no_pending,
    "survives": _Checks.survives,
    "spread": _Checks.spread,
    "cost": _Checks.cost,
    "budgets": _Checks.budgets,
    "quotas": _Checks.quotas,
    "metric": _Checks.metric,
}
