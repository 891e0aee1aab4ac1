"""One drain in virtual time, as ``kubectl drain`` makes it: pods are evicted in parallel, each with its own retries.

An eviction that a budget refuses (status 429) is retried after 5 s. A pod that several budgets cover fails at once, with status
500. An evicted pod is deleted after its grace period. A ReplicaSet, a ReplicationController or a Job replaces it as soon as it
is terminating, a StatefulSet under the same name once it is deleted. A replacement counts as healthy a given time after it was
placed.

Source  kubectl 1.36, pkg/drain/drain.go; kube-apiserver, pkg/registry/core/pod/storage/eviction.go
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from moorage.api.core import ENDED_PHASES, Pod, PodCondition
from moorage.core.engine.facts import Gone, Seen
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.history import Ran, Told
from moorage.laboratory.trial.recorded_simulation import RecordedSimulation
from moorage.simulator.allowed_disruptions import BudgetBook, BudgetFigures, WatchedBudget, looks_ready
from moorage.simulator.owners import controller_of
from moorage.simulator.pod_records import State
from moorage.simulator.replacements import replacement

#: Seconds that kubectl waits before it retries an eviction.
RETRY_S: Final = 5.0
TWO_BUDGETS: Final = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
DENIED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_AT_ONCE: Final = frozenset(["ReplicaSet", "ReplicationController", "Job"])
_ONCE_GONE: Final = frozenset(["StatefulSet"])
_CONDITION: Final = PodCondition(
    type="DisruptionTarget", status="True", reason="EvictionByEvictionAPI", message="Eviction API: evicting"
)


class EvictionRules(Struct, frozen=True):
    """How pods are evicted: ``kubectl drain``'s flags, and how long a pod takes to become ready once it was placed.

    ``grace_period_s``  replaces the grace period of the pods; negative: their own
    ``timeout_s``       kubectl gives up after this time; 0: never
    """

    disable_eviction: bool = False
    grace_period_s: int = -1
    timeout_s: float = 0.0
    ready_after_s: float = 10.0


@dataclass(slots=True)
class Evicting:
    """A pod that kubectl evicts, and its state so far. Times are seconds of simulated time.

    ``budget``       the budgets that refused the eviction, if any did
    ``why``          why the pod has not been evicted yet; "" once it has
    ``failed``       kubectl gave up on the pod, before it was evicted or before it was deleted
    ``replacement``  the UID of the pod that its controller creates instead
    """

    pod: Pod
    node: str
    asked_s: float
    evicted_s: float | None = None
    gone_s: float | None = None
    budget: str = ""
    why: str = ""
    failed: bool = False
    replacement: str = ""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def waits(self) -> bool:
        return self.evicted_s is None and not self.failed


@dataclass
class DrainCourse:
    """A cluster while its nodes are drained: the simulation, and which of its pods are ready.

    ``placed`` are the UIDs of the pods that were on nodes when draining began; they are ready unless the input says otherwise.
    """

    cluster: AskedCluster
    book: BudgetBook
    rules: EvictionRules
    placed: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._members: dict[str, list[str]] = {}
        self._covered: dict[str, list[str]] = {}

    @property
    def simulation(self) -> RecordedSimulation:
        return self.cluster.simulation

    @property
    def now(self) -> float:
        return self.simulation.now

    def tell(self, *facts: Seen | Gone) -> None:
        if facts:
            self.cluster._step(Told(facts))

    def advance(self, until_s: float | None) -> None:
        """Let time pass until a time in seconds; None: until nothing more happens."""
        self.cluster._step(Ran(until_s))

    def is_ready(self, pod: Pod) -> bool:
        """Return True for a pod that is ready now."""
        record = self.simulation.records.get(pod.metadata.uid)
        if pod.metadata.uid in self.placed:
            return record is not None or looks_ready(pod)
        return record is not None and record.placed_s is not None and record.placed_s + self.rules.ready_after_s <= self.now

    def next_ready_s(self) -> float | None:
        """Return when the next placed pod becomes ready; None if all are ready."""
        after = self.rules.ready_after_s
        times = (
            record.placed_s + after
            for uid, record in self.simulation.records.items()
            if record.placed_s is not None and record.state == State.PLACED and uid not in self.placed
        )
        return min((time_s for time_s in times if time_s > self.now), default=None)

    def gather(self) -> None:
        """Update the list of pods in the namespaces of budgets."""
        self._covered = {}
        self._members = {namespace: [] for namespace in self.book.namespaces}
        for uid, pod in self.simulation.pods.items() if self._members else ():
            if pod.metadata.namespace in self._members:
                self._members[pod.metadata.namespace].append(uid)

    def figures(self, budget: WatchedBudget) -> BudgetFigures:
        """Return the figures of a budget now, from the pods that existed at the last ``gather``."""
        pods = self.simulation.pods
        covered = self._covered.get(budget.key)
        if covered is None:
            members = self._members[budget.budget.namespace]
            covered = self._covered[budget.key] = [uid for uid in members if uid in pods and budget.covers(pods[uid])]
        there = [pods[uid] for uid in covered if uid in pods]
        return self.book.figures(budget, there, self.is_ready)


class EvictionApi:
    """The eviction subresource at one moment: each eviction that it allows counts against its budget."""

    def __init__(self, course: DrainCourse) -> None:
        self._course = course
        #: The figures in the status of each budget, as the controller wrote them before the present evictions.
        self._status: dict[str, BudgetFigures] = {}
        course.gather()

    def refusal(self, pod: Pod) -> tuple[str, str] | None:
        """Return the budgets that refuse an eviction and the message; None if it is allowed."""
        covering = [] if self._is_exempt(pod) else self._course.book.covering(pod)
        if len(covering) > 1:
            return ", ".join(budget.key for budget in covering), TWO_BUDGETS
        if not covering:
            return None
        (budget,) = covering
        figures = self._status.get(budget.key) or self._course.figures(budget)
        if not self._course.is_ready(pod):
            always = budget.budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
            if always or figures.healthy >= figures.desired > 0:
                return None
        if figures.allowed > 0 and not figures.fault:
            self._status[budget.key] = figures._replace(slack=figures.slack - 1)
            return None
        return budget.key, _refusal(budget, figures)

    def _is_exempt(self, pod: Pod) -> bool:
        """Return True for a pod that no budget protects: it is finished, or its containers have not started."""
        if pod.status.phase in ENDED_PHASES:
            return True
        return pod.status.phase == "Pending" and pod.metadata.uid not in self._course.simulation.records


@dataclass
class NodeDrain:
    """The evictions that one or more ``kubectl drain`` began at the same time."""

    course: DrainCourse
    evictions: list[Evicting] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._begun_s = self.course.now
        self._leaving: list[tuple[float, int, Evicting]] = []
        self._serial = 0
        self._changed = False

    def run(self, pods: Iterable[tuple[Pod, str]]) -> None:
        """Evict pods, each given with its node, until all are gone or no further eviction succeeds."""
        course, now = self.course, self.course.now
        self.evictions = [Evicting(pod, node, now) for pod, node in pods]
        self._attempt()
        while self._leaving or any(one.waits for one in self.evictions):
            then = self._next_s()
            if then is None or self._is_too_late(then):
                self._give_up()
            if then is not None:
                course.advance(then)
                facts: list[Seen | Gone] = []
                while self._leaving and self._leaving[0][0] <= self.course.now:
                    facts += self._ends(heapq.heappop(self._leaving)[2])
                self._changed |= bool(facts)
                self.course.tell(*facts)
            if any(one.waits for one in self.evictions) and math.isclose(self._on_grid(course.now), course.now):
                self._attempt()

    @property
    def done_s(self) -> float:
        """The time at which the last pod was gone."""
        return max((one.gone_s for one in self.evictions if one.gone_s is not None), default=self._begun_s)

    # -- time ------------------------------------------------------------------------------------------------------------

    def _on_grid(self, time_s: float) -> float:
        """Return the first time, at this time or later, at which kubectl retries."""
        steps = math.ceil((time_s - self._begun_s) / RETRY_S - 1e-9)
        return self._begun_s + steps * RETRY_S

    def _next_s(self) -> float | None:
        """Return the time of the next event to which this drain has to react; None if there is none."""
        leaves = self._leaving[0][0] if self._leaving else None
        if not any(one.waits for one in self.evictions):
            return leaves
        self.course.advance(self.course.now)  # first process everything that is due now: only then is the next event known
        after = self._on_grid(self.course.now + RETRY_S / 1000)
        if self._changed or not self.course.simulation.is_at_rest:
            return after if leaves is None else min(after, leaves)
        ready = self.course.next_ready_s()
        retries = None if ready is None else max(after, self._on_grid(ready))
        return min((one for one in (leaves, retries) if one is not None), default=None)

    def _is_too_late(self, time_s: float) -> bool:
        limit = self.course.rules.timeout_s
        return 0 < limit < time_s - self._begun_s

    def _ends(self, one: Evicting) -> list[Seen | Gone]:
        one.gone_s = self.course.now
        pod = self.course.simulation.pods.get(one.uid)
        if pod is None:
            return []
        return [Gone(pod), *self._replaced(one, _ONCE_GONE)]

    # -- evictions -------------------------------------------------------------------------------------------------------

    def _attempt(self) -> None:
        """Request the eviction of all waiting pods."""
        self._changed = False
        self._api = EvictionApi(self.course)
        for one in self.evictions:
            if one.waits:
                pod = self.course.simulation.pods.get(one.uid)
                if pod is None:
                    one.evicted_s = one.gone_s = self.course.now
                elif pod.metadata.deletion_timestamp is not None:
                    self._watch(one, pod)
                elif self._may_go(one, pod):
                    self._evict(one, pod)

    def _may_go(self, one: Evicting, pod: Pod) -> bool:
        """Return True if the eviction subresource allows the eviction; otherwise record why not."""
        refused = None if self.course.rules.disable_eviction else self._api.refusal(pod)
        if refused is not None:
            one.budget, one.why = refused
            one.failed = one.why == TWO_BUDGETS
        return refused is None

    def _watch(self, one: Evicting, pod: Pod) -> None:
        """Wait for a pod that is terminating already. The simulation deletes victims of preemption itself."""
        one.evicted_s = self.course.now
        if one.uid not in self.course.simulation.victims:
            self._leaves_later(one, self._grace_s(pod))

    def _evict(self, one: Evicting, pod: Pod) -> None:
        one.evicted_s, one.why = self.course.now, ""
        self._changed = True
        grace_s = 0.0 if pod.status.phase in ENDED_PHASES else self._grace_s(pod)
        condition = None if self.course.rules.disable_eviction else _CONDITION
        facts: list[Seen | Gone] = [Seen(self.course.simulation.leaving(pod, condition)), *self._replaced(one, _AT_ONCE)]
        if grace_s <= 0:
            one.gone_s = self.course.now
            facts = [Gone(pod), *facts[1:], *self._replaced(one, _ONCE_GONE)]
        else:
            self._leaves_later(one, grace_s)
        self.course.tell(*facts)

    def _leaves_later(self, one: Evicting, grace_s: float) -> None:
        self._serial += 1
        heapq.heappush(self._leaving, (self.course.now + grace_s, self._serial, one))

    def _grace_s(self, pod: Pod) -> float:
        asked, own = self.course.rules.grace_period_s, pod.spec.termination_grace_period_seconds
        return float(asked if asked >= 0 else 30 if own is None else own)

    def _replaced(self, one: Evicting, kinds: frozenset[str]) -> list[Seen | Gone]:
        """Return the replacement that a controller of one of these kinds creates now; None if there is none."""
        owner = controller_of(one.pod.metadata)
        if owner is None or owner.kind not in kinds or one.pod.status.phase in ENDED_PHASES or one.replacement:
            return []
        if one.pod.metadata.deletion_timestamp is not None and kinds is _AT_ONCE:
            return []
        fresh = replacement(one.pod, kinds)
        if fresh is None:
            return []
        one.replacement = fresh.metadata.uid
        return [Seen(fresh)]

    # -- the end ---------------------------------------------------------------------------------------------------------

    def _give_up(self) -> None:
        """Stop retrying: kubectl's timeout is over, or no further eviction would succeed."""
        limit = self.course.rules.timeout_s
        for one in self.evictions:
            if not one.failed and one.gone_s is None:
                one.failed = one.evicted_s is None or limit > 0
                if one.failed and limit > 0:
                    one.why = "; ".join(filter(None, [f"global timeout reached: {limit:g}s", one.why]))


def _refusal(budget: WatchedBudget, figures: BudgetFigures) -> str:
    """Return the eviction subresource's message."""
    name = budget.budget.name
    if figures.fault:
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {figures.fault}"
    return f"The disruption budget {name} needs {figures.desired} healthy pods and has {figures.healthy} currently"
