"""``check_plugin``: check that a plugin keeps the contract of its extension points.

It runs the plugin alone on a small varied cluster (or yours) and reports all violations at once: masks of the wrong shape,
scores out of range, answers that differ between equal calls or between views, forms of a rule that disagree, what-ifs that
change their state or disagree with PreFilter, promises in ``reuse`` that do not hold, values that are no events or effects, and
changes of the pods and nodes that the plugin is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from moorage.api.core import PodCondition
from moorage.errors import RAISED, PluginError
from moorage.framework.effects import Effect
from moorage.framework.events import Action, Resource, Wake
from moorage.framework.handle import Handle
from moorage.framework.mistakes import mistaken_wakes, mistakes_of
from moorage.framework.plugin_runner import failure_text
from moorage.framework.post_filter import Consult, PostFilterResult
from moorage.framework.profile import Profile, Step, attach, declared_name, declared_wakes, points_of, reuse_of
from moorage.framework.registry import unusable_names
from moorage.framework.verdicts import Hold, Narrow, Skip, Wait
from moorage.state.cluster import ClusterState
from moorage.state.view import PodInfo, Snapshot
from moorage.testing.builders import a_cluster, a_node, a_pod, failed_attempt
from moorage.testing.fake_handle import FakeHandle
from moorage.testing.plugin_queries import alone, final_scores, refusals
from moorage.testing.reuse_checks import check_reuse
from moorage.testing.rule_checks import changes_by, check_filter_forms, check_score_forms, check_what_ifs

__all__ = ["check_plugin", "sample_cluster", "sample_pods"]


# -- hint checks -------------------------------------------------------------------------------------------------------
# Check the promise of ``Wake.by_shape``: hints answer the same for pods that differ only in name, UID and conditions.

_OF_PODS = {Resource.POD, Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD}


def broken_hints(plugin: Any, pods: Iterable[PodInfo], snapshot: Snapshot) -> Iterator[str]:
    """Yield a line for every hint whose answer differs between a pod and another pod of its shape."""
    shapes = [(pod, _twin(pod)) for pod in pods]
    changes: dict[Resource | str, list[tuple[Any, Any]]] = {
        Resource.NODE: list(_changes_of_nodes(snapshot)),
        Resource.POD: list(_changes_of_pods(snapshot)),
    }
    for wake in (wake for wake in declared_wakes(plugin) or () if isinstance(wake, Wake) and wake.by_shape):
        kind = Resource.POD if wake.event.resource in _OF_PODS else wake.event.resource
        for pod, twin in shapes:
            if any(_answer(wake, pod, *change) != _answer(wake, twin, *change) for change in changes.get(kind, ())):
                yield f"the hint for {wake.event} declares by_shape, but answers differently for two pods like {pod.name}"


def _twin(pod: PodInfo) -> PodInfo:
    metadata = replace(pod.metadata, name="twin-of-it", uid="twin-of-it")
    conditions = (PodCondition(type="PodScheduled", status="False", reason="Unschedulable"),)
    return PodInfo(replace(pod.pod, metadata=metadata, status=replace(pod.status, conditions=conditions)))


def _changes_of_nodes(snapshot: Snapshot) -> Iterator[tuple[Any, Any]]:
    nodes = snapshot.table.nodes
    yield from ((None, node) for node in nodes)
    yield from ((replace(one, metadata=other.metadata), one) for one, other in pairwise(nodes))
    yield from ((replace(one, metadata=other.metadata), other) for one, other in pairwise(nodes))


def _changes_of_pods(snapshot: Snapshot) -> Iterator[tuple[Any, Any]]:
    placed = [pod.on(snapshot.table.nodes[row].name) for row, pods in enumerate(snapshot.table.pods) for pod in pods.values()]
    for pod in placed:
        bare = PodInfo(replace(pod.pod, metadata=replace(pod.metadata, labels={})))
        yield from ((None, pod), (pod, None), (bare, pod), (pod, bare))


def _answer(wake: Wake, pod: PodInfo, old: Any, new: Any) -> object:
    try:
        return wake.when is None or bool(wake.when(pod, old, new))
    except RAISED as error:
        return type(error)


def check_plugin(
    plugin: Any, *, pods: Iterable[PodInfo] | None = None, cluster: ClusterState | None = None, handle: Handle | None = None,
    change_outside: Callable[[], object] | None = None,
) -> None:  # fmt: skip
    """Raise AssertionError listing every violation of the contract by ``plugin``, or return.

    ``pods`` and ``cluster`` replace the samples; pass objects that the plugin reacts to. A plugin with ``attach`` is attached
    to ``handle``, or else to a ``FakeHandle`` of the cluster. ``change_outside`` changes the data that the plugin reads from
    outside the cluster: answers that differ then need another version from ``Reuse.outside``.
    """
    snapshot = (cluster or sample_cluster()).snapshot
    bench = _Bench(plugin, snapshot, tuple(sample_pods() if pods is None else pods))
    given = handle or FakeHandle(snapshot)
    fresh = _copies(plugin, bench, given)
    broken = _run_all(lambda bench: _check_attach(bench, given), bench)
    broken += list(_check_shape(plugin))
    for pod in bench.pods:
        for check in (
            _check_shared_objects, _check_filter, _check_score, _check_rules, _check_reserve, _check_effects, _check_others,
        ):  # fmt: skip
            broken += _run(check, bench, pod)
    broken += _run_all(lambda bench: _check_memory(fresh, bench), bench)
    broken += _run_all(_check_shared_signatures, bench)
    broken += _run_all(_check_hints, bench)
    broken += _run_all(lambda bench: _check_outside(bench, change_outside), bench)
    broken += _run_all(lambda bench: broken_hints(bench.plugin, bench.pods, bench.snapshot), bench)
    if broken:
        raise AssertionError(
            f"plugin {declared_name(plugin) or plugin!r}:\n" + "\n".join(f"  {line}" for line in dict.fromkeys(broken))
        )


def sample_pods() -> list[PodInfo]:
    """Return pods of several kinds: plain, labelled, with affinity, ports or tolerations, large."""
    asks = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}
    near = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    together = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    with_port = {**asks, "ports": [{"containerPort": 80, "hostPort": 80}]}
    return [
        a_pod("plain", containers=[{"name": "c"}]),
        a_pod("web", {"app": "web"}, containers=[asks], priority=5),
        a_pod("near", {"app": "web"}, containers=[asks], affinity=together),
        a_pod("bold", containers=[with_port], tolerations=[{"operator": "Exists"}]),
        a_pod("picky", nodeSelector={"disk": "ssd"}, containers=[asks]),
        a_pod("large", containers=[{"name": "c", "resources": {"requests": {"cpu": "64"}}}]),
    ]


def sample_cluster() -> ClusterState:
    """Return six nodes in two zones: empty, busy, tainted, cordoned; with a few placed pods."""
    offers: dict[str, str | int] = {"cpu": "4", "memory": "8Gi", "pods": 10}
    nodes = [
        a_node(
            f"n{at}",
            {
                "topology.kubernetes.io/zone": "ab"[at % 2],
                "kubernetes.io/hostname": f"n{at}",
                **({"disk": "ssd"} if at < 3 else {}),
            },
            allocatable=offers,
            taints=[{"key": "gpu", "effect": "NoSchedule"}] if at == 4 else [],
            unschedulable=at == 5,
        )
        for at in range(6)
    ]
    busy = [
        a_pod(f"busy-{at}", {"app": "web"}, containers=[{"name": "c", "resources": {"requests": {"cpu": "1"}}}])
        for at in range(3)
    ]
    return a_cluster(nodes, {"n1": busy[:2], "n2": busy[2:]})


@dataclass(frozen=True)
class _Bench:
    plugin: Any
    snapshot: Snapshot
    pods: tuple[PodInfo, ...]

    @property
    def others(self) -> list[PodInfo]:
        """Pods to add and remove in what-ifs."""
        return [a_pod("other", {"app": "web"}, containers=[{"name": "c"}], priority=1), *self.pods]


def _run_all(check: Callable[[_Bench], Iterator[str]], bench: _Bench) -> list[str]:
    try:
        return list(check(bench))
    except RAISED as error:
        return [f"failed: {failure_text(error)}"]


def _run(check: Callable[[_Bench, PodInfo], Iterator[str]], bench: _Bench, pod: PodInfo) -> list[str]:
    try:
        return [f"pod {pod.name}: {line}" for line in check(bench, pod)]
    except PluginError as error:
        return [f"pod {pod.name}: {error}"]
    except RAISED as error:
        return [f"pod {pod.name}: failed: {failure_text(error)}"]


def _check_attach(bench: _Bench, handle: Handle) -> Iterator[str]:
    try:
        attach(bench.plugin, handle)
    except RAISED as error:
        yield f"attach failed: {failure_text(error)}"


def _check_hints(bench: _Bench) -> Iterator[str]:
    """Call every hint for every pod with objects of its kind, where the samples have some."""
    changes: dict[str, list[tuple[Any, Any]]] = {
        Resource.NODE: list(_changes_of_nodes(bench.snapshot)), Resource.POD: list(_changes_of_pods(bench.snapshot)),
    }  # fmt: skip
    for wake in (wake for wake in declared_wakes(bench.plugin) or () if isinstance(wake, Wake)):
        if wake.when is None or any(mistaken_wakes([wake])):
            continue
        kind = Resource.POD if wake.event.resource in _OF_PODS else wake.event.resource
        for pod in bench.pods:
            for old, new in changes.get(kind, ()):
                if not _happens(wake, old, new):
                    continue
                try:
                    wake.when(pod, old, new)
                except RAISED as error:
                    given = ", ".join("None" if one is None else type(one).__name__ for one in (pod, old, new))
                    yield f"the hint for {wake.event} failed, called with {given}: {failure_text(error)}"
                    break


def _happens(wake: Wake, old: Any, new: Any) -> bool:
    """Return whether an event with these objects is one that the hint is declared for."""
    needed = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE
    return bool(wake.event.action & needed)


def _check_shape(plugin: Any) -> Iterator[str]:
    yield from mistakes_of(plugin)
    if declared_name(plugin) is None:
        yield "has no name; give the class a line such as name = 'MyPlugin'"
    if not points_of(plugin):
        yield "implements no extension point; see moorage.framework.points"
    elif any(step.unreserve is None for step in alone(plugin).at("reserve")):
        yield "has reserve and no unreserve, which must undo it"
    try:
        wakes = declared_wakes(plugin) or ()
    except RAISED as error:
        yield f"wakes_on failed: {failure_text(error)}"
    else:
        yield from (f"wakes_on yields {wake!r}; yield Wake(event, when)" for wake in wakes if not isinstance(wake, Wake))
        yield from mistaken_wakes(wakes)
        for name in unusable_names(wake for wake in wakes if isinstance(wake, Wake)):
            yield f"wakes_on names {name!r}, which is not a kind; use a Resource, or plural.version.group"


def _check_shared_objects(bench: _Bench, pod: PodInfo) -> Iterator[str]:
    """Check that the plugin changes no object that it is shown."""
    if points_of(bench.plugin) and declared_name(bench.plugin) is not None:
        yield from changes_by(bench.plugin, pod, bench.snapshot)


def _check_filter(bench: _Bench, pod: PodInfo) -> Iterator[str]:
    if not {"filter", "preFilter"} & set(points_of(bench.plugin)):
        return
    whole = refusals(bench.plugin, pod, bench.snapshot)
    if whole != refusals(bench.plugin, pod, bench.snapshot):
        yield "rejects other nodes when the call is repeated"


def _check_score(bench: _Bench, pod: PodInfo) -> Iterator[str]:
    if "score" not in points_of(bench.plugin):
        return
    if final_scores(bench.plugin, pod, bench.snapshot) != final_scores(bench.plugin, pod, bench.snapshot):
        yield "scores differently when the call is repeated"


def _check_rules(bench: _Bench, pod: PodInfo) -> Iterator[str]:
    yield from check_filter_forms(bench.plugin, pod, bench.snapshot)
    yield from check_score_forms(bench.plugin, pod, bench.snapshot)
    yield from check_what_ifs(bench.plugin, pod, bench.others, bench.snapshot)
    yield from check_reuse(bench.plugin, pod, bench.others, bench.snapshot)


def _check_shared_signatures(bench: _Bench) -> Iterator[str]:
    """Check that pods with equal signatures are treated equally."""
    sign = reuse_of(bench.plugin).signature
    if sign is None:
        return
    first: dict[Any, PodInfo] = {}
    for pod in bench.pods:
        signature = sign(pod)
        if signature is None:
            continue
        twin = first.setdefault(tuple(signature.items()), pod)
        if _treated(bench, pod) != _treated(bench, twin):
            yield f"gives pods {twin.name} and {pod.name} the same signature ({signature!r}), but treats them differently"


def _copies(plugin: Any, bench: _Bench, handle: Handle) -> list[Any]:
    """Return two copies of the plugin as it was given, that have seen no pod; none if it cannot be copied.

    Each has a handle of its own with the gates of ``handle``, so that what it asks for stays out of the other's.
    """
    if not {"filter", "preFilter", "score"} & set(points_of(plugin)) or declared_name(plugin) is None:
        return []
    try:
        copies = [deepcopy(plugin), deepcopy(plugin)]
        for one in copies:
            attach(one, FakeHandle(bench.snapshot, gates=handle.gates))
    except RAISED:
        return []
    return copies


def _check_memory(fresh: list[Any], bench: _Bench) -> Iterator[str]:
    """Check that answers do not depend on the pods that were asked about before, in one order and in the other."""
    if not fresh:
        return
    places = range(len(bench.pods))  # pods of a test may share a name, and so a UID
    try:
        told = [
            {at: _judged(one, bench.pods[at], bench.snapshot) for at in order}
            for one, order in zip(fresh, (places, places[::-1]), strict=True)
        ]
    except RAISED:
        return  # the other checks say so
    for at, pod in enumerate(bench.pods):
        if told[0][at] != told[1][at]:
            yield f"treats pod {pod.name} differently after other pods; keep nothing of a pod before Reserve"


def _check_outside(bench: _Bench, change: Callable[[], object] | None) -> Iterator[str]:
    """Check that the version of outside data is stable, and differs whenever an answer does."""
    reuse = reuse_of(bench.plugin)
    version = reuse.outside or (lambda: None)
    before = version()
    try:
        hash(before)
    except TypeError:
        yield f"outside returns {before!r:.100}, which cannot be hashed; return a number or a text"
        return
    if version() != before:
        yield "outside returns another value when it is called again, so nothing is ever kept; return a version that stays"
        return
    if change is None:
        return
    judged = [_judged(bench.plugin, pod, bench.snapshot) for pod in bench.pods]
    change()
    again = [_judged(bench.plugin, pod, bench.snapshot) for pod in bench.pods]
    if reuse.outside is not None and judged == again and version() == before:
        yield "change_outside changes neither an answer nor the version of outside"
    elif judged != again and version() == before and (reuse.signature is not None or reuse.outside is not None):
        yield "answers change with the data outside, and kept ones would not: declare Reuse(outside=...), the data's version"


def _judged(plugin: Any, pod: PodInfo, snapshot: Snapshot) -> Any:
    points = set(points_of(plugin))
    refused = refusals(plugin, pod, snapshot) if {"filter", "preFilter"} & points else None
    return refused, final_scores(plugin, pod, snapshot) if "score" in points else None


def _treated(bench: _Bench, pod: PodInfo) -> Any:
    return _judged(bench.plugin, pod, bench.snapshot), _helps(bench, pod)


def _helps(bench: _Bench, pod: PodInfo) -> PostFilterResult | None:
    """Return the result of PostFilter where it finds nothing to do; None if it is absent, or has something to do."""
    step = next(iter(alone(bench.plugin).at("postFilter")), None)
    if step is None:
        return None
    answer = step.call(pod, failed_attempt([bench.plugin], pod, bench.snapshot))
    if not isinstance(answer, PostFilterResult) or answer.nominated or answer.victims or answer.effects or answer.displaced:
        return None
    return answer


def _check_reserve(bench: _Bench, pod: PodInfo) -> Iterator[str]:
    profile, node = alone(bench.plugin), bench.snapshot.table.nodes[0].name
    for step in profile.at("reserve"):
        held = step.call(None, pod, node)
        if held is not None and not isinstance(held, Hold):
            yield f"returned {held!r} from reserve; return None or Hold"
        for undone in (_unreserved(step, None, pod, node), _unreserved(step, None, pod, node)):
            yield from (f"unreserve yields {e!r}; yield effects, or return None" for e in undone if not isinstance(e, Effect))
    for step in profile.at("permit"):
        answer = step.call(None, pod, node)
        if answer is not None and not isinstance(answer, Hold | Wait):
            yield f"returned {answer!r} from permit; return None, Hold or Wait"


def _unreserved(step: Step, state: Any, pod: PodInfo, node: str) -> tuple[Any, ...]:
    return () if step.unreserve is None else tuple(step.unreserve.call(state, pod, node) or ())


def _reserved(profile: Profile, call: Callable[..., Any], state: Any, pod: PodInfo, node: str) -> Any:
    """Call a method as the scheduler does, between Reserve and Unreserve; if Reserve rejects the pod, that is the answer."""
    for step in profile.at("reserve"):
        try:
            return step.call(state, pod, node) or call(state, pod, node)
        finally:
            _unreserved(step, state, pod, node)
    return call(state, pod, node)


def _check_effects(bench: _Bench, pod: PodInfo) -> Iterator[str]:
    """Check that PreBind and Bind return effects, unless PreFilter, whose state they receive, skips or rejects the pod."""
    profile, node = alone(bench.plugin), bench.snapshot.table.nodes[0].name
    for point, others in (("preBind", ()), ("bind", (Skip,))):
        for step in profile.at(point):
            state = next((one.call(pod, bench.snapshot) for one in profile.at("preFilter")), pod)
            if isinstance(state, Skip | Hold):
                continue
            answer = _reserved(profile, step.call, state.state if isinstance(state, Narrow) else state, pod, node)
            if isinstance(answer, (Hold, *others)):
                continue
            effects = answer if isinstance(answer, Iterable) else [answer] if answer is not None else []
            for effect in effects:
                if not isinstance(effect, Effect):
                    yield f"returned {effect!r} from {point}; yield effects, see moorage.framework.effects"


def _check_others(bench: _Bench, pod: PodInfo) -> Iterator[str]:
    """Check the answers of PreEnqueue, QueueSort, PostFilter and PostBind."""
    profile, node = alone(bench.plugin), bench.snapshot.table.nodes[0].name
    for step in profile.at("preEnqueue"):
        answer = step.call(pod)
        if answer is not None and not isinstance(answer, Hold):
            yield f"returned {answer!r} from pre_enqueue; return None or Hold"
    for step in profile.at("queueSort"):
        keys = [step.call(_Queued(other, float(at))) for at, other in enumerate((pod, *bench.pods))]
        try:
            sorted(keys)
        except TypeError as error:
            yield f"sort_key returns {keys[0]!r:.100}, and keys cannot be compared: {error}"
    for step in profile.at("postFilter"):
        try:
            attempt = failed_attempt([bench.plugin], pod, bench.snapshot)
        except RAISED:  # its own PreFilter or Filter fails, which the checks of these say
            continue
        answer = step.call(pod, attempt)
        if not isinstance(answer, PostFilterResult | Consult):
            yield f"returned {answer!r:.100} from post_filter; return PostFilterResult(code, ...)"
    for step in profile.at("postBind"):
        answer = step.call(None, pod, node)
        if answer is not None:
            yield f"returned {answer!r:.100} from post_bind; return nothing"


@dataclass(frozen=True)
class _Queued:
    pod: PodInfo
    timestamp: float
