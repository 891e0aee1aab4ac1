"""Advice: which changes people make, in which order, and which ones they should not make.

Plugins offer every change that lifts a refusal. Advice goes through these offers for each node. It replaces an offer by what a
person would do instead: correct a misspelt selector rather than drop it, repair a node rather than remove the taint of its
condition, wait for a job rather than evict it. It leaves out what no one should do; ``LEFT_OUT`` has the reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import count, islice, product
from typing import Any, Final

from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES, Node, Pod
from moorage.api.workloads import Deployment, Job, PriorityClass, ReplicaSet, StatefulSet
from moorage.framework.changes import Change
from moorage.laboratory.change.change_text import workload_of
from moorage.laboratory.change.corrections import CORRECTED, Corrections, required_labels
from moorage.laboratory.change.offers import ChangeSet, NodeOffers
from moorage.laboratory.change.untouchable import NOTHING, Untouchable
from moorage.laboratory.costs import CHANGES, Costs
from moorage.laboratory.edit.changes import AT_FIRST, GOING, is_of_start, is_transient
from moorage.laboratory.edit.pod_changes import parse_taint
from moorage.laboratory.surroundings import Surroundings
from moorage.laboratory.trial.trials import Trial
from moorage.simulator.owners import controller_kind, controller_of

#: What people do, in the order in which they do it: kind → verbs.
KINDS: Final[Mapping[str, Sequence[str]]] = CHANGES["kinds"]
_RANKS: Final = {verb: rank for rank, verbs in enumerate(KINDS.values()) for verb in verbs}

#: Why a change is left out, by a short name for the reason.
LEFT_OUT: Final[Mapping[str, str]] = CHANGES["left_out"]
#: A node that is not ready counts as starting for this long.
_STARTS_WITHIN_S: Final = 900
#: Verbs that are always left out, and why.
_NEVER: Final[Mapping[str, str]] = CHANGES["never"]
_HIGHEST: Final = 1_000_000_000
#: Changes that a person makes only instead of the one that plugins offer.
_REPLACING: Final = frozenset(["surge", "relabel", "wait", "tolerate-own", "repair"])
_MIRROR: Final = "kubernetes.io/config.mirror"
#: A request is not lowered to this part of it, or less.
_TENTH: Final = 10
#: Changes that only a priority class can make.
_RAISING: Final = frozenset(["priority", "preemption-policy"])
#: Maximum number of combinations of what replaces the changes of one offer.
_MOST: Final = 32


def kind_of(changes: Iterable[Change]) -> str:
    """Return the kind of a set of changes: that of the change that comes last in the order of what people do."""
    return list(KINDS)[max((_RANKS.get(one.verb, len(KINDS) - 1) for one in changes), default=0)]


class Advice:
    """Advice on the changes for one pod, ``namespace/name``. With ``everything``, nothing is left out.

    ``left_out``  what was left out: reason → changes
    ``costs``     if they have prices, other nodes cannot be bought; if they have what pods use, no request falls below that
    """

    def __init__(
        self, around: Surroundings, key: str, costs: Costs | None = None, *, everything: bool = False,
        untouched: Untouchable = NOTHING,
    ) -> None:  # fmt: skip
        self._around = around
        self._key = key
        self._prices, self._usage = (costs.prices, costs.usage) if costs is not None else ({}, {})
        self.everything = everything
        self._untouched = untouched
        #: What to do instead of each change, on each node.
        self._known: dict[tuple[Change, str | None], list[Change]] = {}
        self.left_out: dict[str, set[tuple[str, str, str]]] = {}

    # -- the cluster ----------------------------------------------------------------------------------------------------------

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        return {node.metadata.name: node for node in self._around.all_of(Node) if isinstance(node, Node)}

    @cached_property
    def _pods(self) -> dict[str, Pod]:
        pods = (pod for pod in self._around.all_of(Pod) if isinstance(pod, Pod))
        return {f"{its.namespace}/{its.name}": pod for pod in pods for its in (pod.metadata,)}

    @cached_property
    def _pod(self) -> Pod:
        return self._pods.get(self._key) or Pod()

    @cached_property
    def _corrections(self) -> Corrections:
        return Corrections(self._pod, self._nodes, self._pods, self._around)

    @cached_property
    def _newest_s(self) -> float:
        """The time of the newest object, in seconds since 1970: a dump does not say when it was taken."""
        objects = (*self._nodes.values(), *self._pods.values())
        return max(map(_seconds, {obj.metadata.creation_timestamp for obj in objects}), default=0.0)

    @cached_property
    def _selected(self) -> frozenset[tuple[str, str]]:
        """Labels of nodes that other pods require."""
        found: set[tuple[str, str]] = set()
        known: set[int] = set()  # the ids of selectors, which copies share
        for key, pod in self._pods.items():
            spec = pod.spec
            if (spec.affinity is not None or id(spec.node_selector) not in known) and key != self._key:
                known.add(id(spec.node_selector))
                found.update(required_labels(spec))
        return frozenset(found)

    @cached_property
    def _is_open_to_all(self) -> bool:
        """Whether some node has no taint that keeps pods away, apart from those of conditions."""
        return any(not any(_is_kept(taint.key, taint.effect) for taint in node.spec.taints) for node in self._nodes.values())

    @cached_property
    def _draining(self) -> frozenset[str]:
        """Cordoned nodes from which pods are leaving."""
        leaving = {pod.spec.node_name for pod in self._pods.values() if pod.metadata.deletion_timestamp is not None}
        return frozenset(name for name in leaving if name in self._nodes and self._nodes[name].spec.unschedulable)

    def used(self, resource: str) -> int | None:
        """Return the most that a pod of the workload uses of a resource; None if that is not known."""
        return self._most_used.get(resource)

    @cached_property
    def _most_used(self) -> dict[str, int]:
        most: dict[str, int] = {}
        workload = workload_of(self._pod, self._around) if self._usage else None
        for key, amounts in self._usage.items():
            other = self._pods.get(key)
            is_sibling = other is not None and workload is not None and other.namespace == self._pod.namespace
            if key == self._key or (is_sibling and workload_of(other or self._pod, self._around) == workload):
                for name, amount in amounts.items():
                    most[name] = max(amount, most.get(name, 0))
        return most

    # -- offers ---------------------------------------------------------------------------------------------------------------

    def revised(self, offers: NodeOffers) -> NodeOffers:
        """Return the offers for a node as a person would choose them."""
        node = self._node_of(offers)
        constraints = (
            tuple(dict.fromkeys(instead for one in sets for instead in self._instead(one, node))) for sets in offers.constraints
        )
        return NodeOffers(offers.node, tuple(constraints))

    def _node_of(self, offers: NodeOffers) -> Node | None:
        """Return the node; for a new one, the node that it is like."""
        found = self._nodes.get(offers.node)
        if found is None:
            first = next((one for sets in offers.constraints for some in sets for one in some if one.verb == "add-node"), None)
            found = None if first is None else self._nodes.get(str(first.new).removeprefix("like "))
        return found

    def _instead(self, changes: ChangeSet, node: Node | None) -> Iterator[ChangeSet]:
        if any(one.verb in _RAISING for one in changes):
            yield from (frozenset([one]) for one in self._classes(changes, node))
            return
        if len(changes) == 1:
            yield from (frozenset([one]) for change in changes for one in self._options(change, node))
            return
        options = [self._options(change, node) for change in sorted(changes, key=lambda one: (one.verb, one.target, one.path))]
        if all(options):
            yield from map(frozenset, islice(product(*options), _MOST))

    def _options(self, change: Change, node: Node | None) -> list[Change]:
        """Return what to do instead of a change, and the change itself unless it is left out."""
        place = (change, None if node is None else node.name)
        if place not in self._known:
            instead = list(self._better(change, node))
            reason = self._reason(change, node)
            if reason:
                self.left_out.setdefault(reason, set()).add((change.verb, change.target, change.path))
            is_replaced = any(one.verb in _REPLACING or change.verb == "volume" for one in instead)
            if self.everything or not (reason or is_replaced):
                instead.append(change)
            self._known[place] = instead
        return self._known[place]

    def _better(self, change: Change, node: Node | None) -> Iterator[Change]:
        match change.verb:
            case verb if verb in CORRECTED:
                yield from self._corrections.instead_of(change, node)
            case "tolerate" if node is not None and self._belongs(node, str(change.new)):
                yield replace(change, verb="tolerate-own")
            case "untaint" if node is not None:
                yield from self._recovery(change, node)
            case "uncordon" if node is not None and node.name in self._draining:
                yield Change("cluster", "wait", change.target, "unschedulable", "drain")
            case "label" if not self._reason_against_label(change) and self._is_a_pool(change):
                yield replace(change, verb="relabel")
            case "evict":
                yield from self._leaving(change)
            case "allocatable" if node is not None and change.old == 0 and (name := change.path.partition(".")[2]) in {
                *node.status.capacity, *node.status.allocatable
            }:  # fmt: skip
                yield Change("node", "repair", change.target, change.path, f"no {name}", change.new)

    def _classes(self, changes: ChangeSet, node: Node | None) -> Iterator[Change]:
        """Yield the priority class that lets a pod preempt with the priority that it needs: an existing one, or a new one.

        The API server sets the priority of a pod, and whether it may preempt, from its class.
        """
        wanted = max((one.new for one in changes if isinstance(one.new, int)), default=self._pod.spec.priority or 0)
        for one in changes:
            yield from self._corrections.instead_of(one, node)
        if wanted > _HIGHEST:
            self.leave_out("system", changes)
            return
        held = [one for one in self._around.all_of(PriorityClass) if isinstance(one, PriorityClass)]
        old = self._pod.spec.priority_class_name
        enough = [
            one for one in held
            if wanted <= one.value <= _HIGHEST and one.preemption_policy != "Never" and one.metadata.name != old
        ]  # fmt: skip
        target = f"pod/{self._key}"
        if enough:
            best = min(enough, key=lambda one: (one.value, one.metadata.name))
            yield Change("pod", "priority-class", target, "priorityClassName", old, f"{best.metadata.name}={best.value}")
            return
        taken = {one.metadata.name for one in held}
        names = (f"priority-{wanted}{f'-{number}' if number > 1 else ''}" for number in count(1))
        name = next(one for one in names if one not in taken)
        yield Change("pod", "create-class", target, "priorityClassName", old, f"{name}={wanted}")

    def _reason(self, change: Change, node: Node | None) -> str:
        """Return why a change is left out; "" if it is not."""
        match change.verb:
            case "label":
                return self._reason_against_label(change)
            case "evict":
                pod = self._pods.get(change.target.removeprefix("pod/"))
                static = pod is not None and _MIRROR in pod.metadata.annotations
                return "static" if static else "lost" if pod is None or controller_of(pod.metadata) is None else ""
            case "tolerate" | "untaint":
                return self._reason_against(str(change.old if change.verb == "untaint" else change.new), change.verb, node)
            case "plugin-argument":
                return "filter" if change.path == "ignoredResources" else ""
            case "add-node" if self._prices:
                return "" if str(change.new).removeprefix("like ") in self._prices else "unlisted"
            case "request":
                used = self.used(change.path.removeprefix("requests."))
                is_less = used is not None and isinstance(change.new, int) and change.new < used
                is_tenth = isinstance(change.new, int) and isinstance(change.old, int) and change.new * _TENTH <= change.old
                return "nothing" if change.new == 0 else "used" if is_less else "tenth" if is_tenth else ""
            case "ungate":
                return "gate" if "/" in str(change.old) else ""
        of_its_node = change.verb == "drop-expression" and "metadata.name" in str(change.old)
        return "pinned" if of_its_node and controller_kind(self._pod) == "DaemonSet" else _NEVER.get(change.verb, "")

    def _is_a_pool(self, change: Change) -> bool:
        """Return whether a label tells nodes apart."""
        key = change.path.removeprefix("labels.")
        return change.old is not None or any(key in one.labels for one in self._nodes.values())

    def _reason_against_label(self, change: Change) -> str:
        key = change.path.removeprefix("labels.")
        if (key, str(change.old)) in self._selected:
            return "pool"
        return "misspelt" if change.new is not None and self._corrections.of_label(key, str(change.new)) else ""

    def _reason_against(self, text: str, verb: str, node: Node | None) -> str:
        """Return why a taint is not removed or tolerated."""
        taint = parse_taint(text)
        if taint.key.startswith(GOING):
            return "leaving"
        if is_transient(taint.key):
            return "condition"
        is_own = node is not None and self._belongs(node, text)
        return "dedicated" if self._is_open_to_all or (is_own and verb == "untaint") else ""

    def _belongs(self, node: Node, taint: str) -> bool:
        """Return whether the pod asks for nodes like one with a taint: by labels, resources, or almost by tolerations."""
        key = parse_taint(taint).key
        if is_transient(key):
            return False
        if controller_kind(self._pod) == "DaemonSet":
            return True
        every = self._nodes.values()
        wanted = (label for label in required_labels(self._pod.spec) if node.labels.get(label[0]) == label[1])
        if any(any(one.labels.get(name) != value for one in every) for name, value in wanted):
            return True
        asked = {name for one in self._pod.spec.containers for name in one.resources.requests if "/" in name}
        scarce = {name for name in asked if any(name not in one.status.allocatable for one in every)}
        return bool(scarce & set(node.status.allocatable)) or self._corrections.is_almost_tolerated(parse_taint(taint))

    def _recovery(self, change: Change, node: Node) -> Iterator[Change]:
        """Yield what ends the condition of a node: time while it starts, or a repair."""
        key = parse_taint(str(change.old)).key
        if not is_transient(key) or key.startswith(GOING):
            return
        age = self._newest_s - _seconds(node.metadata.creation_timestamp)
        is_new = bool(node.metadata.creation_timestamp) and age < _STARTS_WITHIN_S
        if is_of_start(key) and (is_new or key not in AT_FIRST):
            yield Change("cluster", "wait", change.target, "conditions", "start")
        else:
            yield Change("node", "repair", change.target, "conditions", key.rpartition("/")[2])

    def _leaving(self, change: Change) -> Iterator[Change]:
        """Yield how a pod leaves without an eviction: it ends by itself, or its rollout removes it first."""
        pod = self._pods.get(change.target.removeprefix("pod/"))
        if pod is None:
            return
        owner = controller_of(pod.metadata)
        if owner is not None and owner.kind == "Job":
            yield Change("cluster", "wait", change.target, self._end_of(pod, owner.name), change.old)
        elif (
            owner is not None and owner.kind == "ReplicaSet" and pod.namespace == self._pod.namespace
            and (mine := controller_of(self._pod.metadata)) is not None and mine.name != owner.name
            and (held := workload_of(pod, self._around)) == workload_of(self._pod, self._around)
            and held is not None and held[0] == "Deployment"
        ):  # fmt: skip
            yield Change("pod", "surge", change.target, f"deployment/{held[1]}", change.old)

    def _end_of(self, pod: Pod, name: str) -> str:
        """Return what ends a pod of a job: its deadline, or "" for its work."""
        job = self._around.find(Job, pod.namespace, name)
        deadline = job.spec.active_deadline_seconds if isinstance(job, Job) else None
        deadline = deadline or pod.spec.active_deadline_seconds
        began = _seconds(pod.status.start_time or "")
        if not deadline or not began:
            return f"job/{name}"
        return f"job/{name} until {datetime.fromtimestamp(began + deadline).astimezone().strftime('%Y-%m-%dT%H:%M:%SZ')}"

    # -- answers --------------------------------------------------------------------------------------------------------------

    def forbids(self, changes: ChangeSet) -> bool:
        """Return whether changes touch what is to be left alone, and note those that do."""
        if not self._untouched.holds_any(changes, self._around):
            return False
        self.leave_out("untouched", (one for one in changes if self._untouched.holds_any([one], self._around)))
        return True

    def refuses(self, changes: ChangeSet, broken: int, trial: Trial) -> bool:
        """Return whether an answer is left out for what becomes of other pods; ``broken``: violations of budgets."""
        if self._untouched.holds_pods((*trial.displaced, *trial.stranded), self._around):
            self.leave_out("untouched", changes)
            return True
        preempts = any(one.verb in KINDS["priority"] for one in changes)
        reason = "budget" if broken else "stranded" if trial.stranded else ""
        reason = reason or ("returns" if preempts and any(map(self._returns, trial.displaced)) else "")
        if reason:
            self.leave_out(reason, (one for one in changes if one.verb == "evict" or one.verb in KINDS["priority"]))
        return bool(reason) and not self.everything

    def leave_out(self, reason: str, changes: Iterable[Change]) -> None:
        """Note changes that are left out for a reason."""
        self.left_out.setdefault(reason, set()).update((one.verb, one.target, one.path) for one in changes)

    def _returns(self, key: str) -> bool:
        """Return whether a preempted pod comes back with the same claim to its place: a sibling, or one of a DaemonSet."""
        pod = self._pods.get(key)
        owner, mine = (None if one is None else controller_of(one.metadata) for one in (pod, self._pod))
        if owner is None or pod is None:
            return False
        is_sibling = mine is not None and workload_of(pod, self._around) == workload_of(self._pod, self._around)
        return owner.kind == "DaemonSet" or (pod.namespace == self._pod.namespace and is_sibling)

    def scaled(self, changes: ChangeSet) -> ChangeSet | None:
        """Return the set that scales workloads down instead of evicting their pods; None if one of them cannot be."""
        found = {change for change in changes if change.verb != "evict"}
        evicted = [self._pods.get(one.target.removeprefix("pod/")) for one in changes if one.verb == "evict"]
        scales = [None if pod is None else self._scale(pod) for pod in evicted]
        fewer = Counter(_workload(one) for one in scales if one is not None)
        for one in scales:
            left = 0 if one is None or not isinstance(one.old, int) else one.old - fewer[_workload(one)]
            if one is None or left < 1:
                return None
            found.add(replace(one, new=left))
        return frozenset(found)

    def _scale(self, pod: Pod) -> Change | None:
        workload = workload_of(pod, self._around)
        kinds: Mapping[str, Any] = {"Deployment": Deployment, "ReplicaSet": ReplicaSet, "StatefulSet": StatefulSet}
        if workload is None or workload[0] not in kinds or (pod.spec.priority or 0) > _HIGHEST:
            return None
        if pod.namespace == self._pod.namespace and workload == workload_of(self._pod, self._around):
            return None  # the pod that waits would go first
        if (pod.spec.priority or 0) > (self._pod.spec.priority or 0):
            return None  # people say by priorities what they can spare
        kind, name = workload
        held = self._around.find(kinds[kind], pod.namespace, name)
        mine = [
            one for one in self._pods.values() if one.namespace == pod.namespace and workload_of(one, self._around) == workload
        ]
        living = [one for one in mine if one.status.phase not in ENDED_PHASES and one.metadata.deletion_timestamp is None]
        if any(not one.spec.node_name for one in living):
            return None  # pods that wait go before those that run
        count = len(living) if held is None else getattr(getattr(held, "spec", None), "replicas", None) or 1
        last = max(mine, key=lambda one: (len(one.name), one.name))
        if count < 2 or (kind == "StatefulSet" and pod.key != last.key):
            return None
        return Change("cluster", "scale", f"pod/{pod.key}", f"{kind.lower()}/{name}", count, count - 1)


def _workload(change: Change) -> tuple[str, str]:
    """Return the namespace and the workload that a change scales."""
    return change.target.rpartition("/")[0], change.path


def _is_kept(key: str, effect: str) -> bool:
    return effect != "PreferNoSchedule" and not is_transient(key)


def _seconds(time: str | None) -> float:
    try:
        return datetime.fromisoformat(time or "").timestamp()
    except ValueError:
        return 0.0
