"""``check_plugin``: check that a plugin keeps the contract of its extension points.

Runs the plugin alone on a small, varied cluster (or a given one) and reports every violation: masks of the wrong shape, scores
out of range, answers that change when the call is repeated or when fewer nodes are passed, forms of a point that disagree,
what-ifs that modify their input state or differ from a new PreFilter, a wrong ``depends``, a signature that changes, is not
hashable or is shared by pods that are treated differently, and invalid events and effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from moorage.engine.custom_kinds import unusable_names
from moorage.errors import PluginError
from moorage.framework.effects import Effect
from moorage.framework.events import Wake
from moorage.framework.points import points_of
from moorage.framework.verdicts import Hold, Narrow, Skip, Wait
from moorage.state.cluster import ClusterState, Snapshot
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import final_scores, refusals
from moorage.testing.rule_checks import check_claims, check_filter_forms, check_score_forms, check_what_ifs

__all__ = ["check_plugin", "sample_cluster", "sample_pods"]


def check_plugin(plugin: Any, *, pods: Iterable[PodInfo] | None = None, cluster: ClusterState | None = None) -> None:
    """Raise AssertionError listing every violation of the contract by ``plugin``, or return.

    ``pods`` and ``cluster`` replace the samples; pass objects that the plugin reacts to.
    """
    bench = _Bench(plugin, (cluster or sample_cluster()).snapshot, tuple(sample_pods() if pods is None else pods))
    broken = list(_check_shape(plugin))
    for pod in bench.pods:
        for check in (_check_filter, _check_score, _check_rules, _check_signature, _check_reserve, _check_effects):
            broken += _run(check, bench, pod)
    broken += _run_all(_check_shared_signatures, bench)
    if broken:
        raise AssertionError(
            f"plugin {getattr(plugin, 'name', plugin)!r}:\n" + "\n".join(f"  {line}" for line in dict.fromkeys(broken))
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
    except Exception as error:
        return [f"failed: {type(error).__name__}: {error}"]


def _run(check: Callable[[_Bench, PodInfo], Iterator[str]], bench: _Bench, pod: PodInfo) -> list[str]:
    try:
        return [f"pod {pod.name}: {line}" for line in check(bench, pod)]
    except PluginError as error:
        return [f"pod {pod.name}: {error}"]
    except Exception as error:
        return [f"pod {pod.name}: failed: {type(error).__name__}: {error}"]


def _check_shape(plugin: Any) -> Iterator[str]:
    name = getattr(plugin, "name", None)
    if not isinstance(name, str) or not name:
        yield "has no name; give the class a line such as name = 'MyPlugin'"
    if not points_of(plugin):
        yield "implements no extension point; see moorage.framework.points"
    if callable(getattr(plugin, "reserve", None)) and not callable(getattr(plugin, "unreserve", None)):
        yield "has reserve and no unreserve, which must undo it"
    if hasattr(plugin, "wakes_on"):
        try:
            wakes = list(plugin.wakes_on())
        except Exception as error:
            yield f"wakes_on failed: {type(error).__name__}: {error}"
        else:
            yield from (f"wakes_on yields {wake!r}; yield Wake(event, when)" for wake in wakes if not isinstance(wake, Wake))
            for name in unusable_names(wake for wake in wakes if isinstance(wake, Wake)):
                yield f"wakes_on names {name!r}, which is not a kind; use a Resource, or plural.version.group"


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
    yield from check_claims(bench.plugin, pod, bench.others, bench.snapshot)


def _check_shared_signatures(bench: _Bench) -> Iterator[str]:
    """Check that pods with equal signatures are treated equally."""
    sign = getattr(bench.plugin, "sign", None)
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


def _treated(bench: _Bench, pod: PodInfo) -> Any:
    points = set(points_of(bench.plugin))
    refused = refusals(bench.plugin, pod, bench.snapshot) if {"filter", "preFilter"} & points else None
    return refused, final_scores(bench.plugin, pod, bench.snapshot) if "score" in points else None


def _check_signature(bench: _Bench, pod: PodInfo) -> Iterator[str]:
    sign = getattr(bench.plugin, "sign", None)
    if sign is None:
        return
    signature = sign(pod)
    if signature is None:
        return
    if signature != sign(PodInfo(pod.pod)):
        yield f"gives the same pod the signatures {signature!r} and {sign(PodInfo(pod.pod))!r}"
    try:
        hash(tuple(signature.items()))
    except TypeError as error:
        yield f"signature {signature!r} cannot be hashed ({error}); use tuples and frozensets"


def _check_reserve(bench: _Bench, pod: PodInfo) -> Iterator[str]:
    plugin, node = bench.plugin, bench.snapshot.table.nodes[0].name
    state = None
    if callable(getattr(plugin, "reserve", None)):
        held = plugin.reserve(state, pod, node)
        if held is not None and not isinstance(held, Hold):
            yield f"returned {held!r} from reserve; return None or Hold"
        for _ in range(2):
            undone = plugin.unreserve(state, pod, node)
            yield from (
                f"unreserve yields {e!r}; yield effects, or return None" for e in undone or () if not isinstance(e, Effect)
            )
    if callable(getattr(plugin, "permit", None)):
        answer = plugin.permit(state, pod, node)
        if answer is not None and not isinstance(answer, Hold | Wait):
            yield f"returned {answer!r} from permit; return None, Hold or Wait"


def _reserved(plugin: Any, call: Callable[..., Any], state: Any, pod: PodInfo, node: str) -> Any:
    """Call a method as the scheduler does: between Reserve, whose rejection becomes the answer, and Unreserve."""
    if not callable(getattr(plugin, "reserve", None)):
        return call(state, pod, node)
    try:
        return plugin.reserve(state, pod, node) or call(state, pod, node)
    finally:
        plugin.unreserve(state, pod, node)


def _check_effects(bench: _Bench, pod: PodInfo) -> Iterator[str]:
    """Check that PreBind and Bind return effects. The plugin gets the state of its PreFilter; a rejected pod is skipped."""
    node = bench.snapshot.table.nodes[0].name
    for method, others in (("pre_bind", ()), ("bind", (Skip,))):
        call = getattr(bench.plugin, method, None)
        if not callable(call):
            continue
        state = getattr(bench.plugin, "pre_filter", lambda pod, snapshot: pod)(pod, bench.snapshot)
        if isinstance(state, Skip | Hold):
            continue
        answer = _reserved(bench.plugin, call, state.state if isinstance(state, Narrow) else state, pod, node)
        if isinstance(answer, (Hold, *others)):
            continue
        effects = answer if isinstance(answer, Iterable) else [answer] if answer is not None else []
        for effect in effects:
            if not isinstance(effect, Effect):
                yield f"returned {effect!r} from {method}; yield effects, see moorage.framework.effects"
