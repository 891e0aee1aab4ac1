"""Apply the admission plugins of a stock API server to new objects, limited to the fields that scheduling reads.

Without an API server, the code that simulates creating a pod calls these functions. Each returns the changed object and the
texts with which a real API server would have rejected it; the caller decides whether these are fatal. Objects from a dump were
admitted when they were created and must not be admitted again.

Source  kubernetes, plugin/pkg/admission: priority, limitranger, defaulttolerationseconds, runtimeclass,
        storage/storageclass/setdefault
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from moorage.api.core import Container, LimitRange, LimitRangeItem, Pod, Toleration
from moorage.api.defaults import default_limit_range, total_amounts
from moorage.api.meta import Object, ObjectMeta, Quantity, ResourceList, Value
from moorage.api.pod_groups import CompositePodGroup, PodGroup
from moorage.api.quantity import NANO_PER_UNIT, parse
from moorage.api.storage import PersistentVolumeClaim, StorageClass
from moorage.api.workloads import PriorityClass


class Overhead(Value):
    pod_fixed: ResourceList = {}


class RuntimeScheduling(Value):
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(Object):
    handler: str = ""
    overhead: Overhead | None = None
    scheduling: RuntimeScheduling | None = None


class Admitted(NamedTuple):
    """A pod after admission. ``refusals``: the errors with which a real API server would have rejected it; () if none."""

    pod: Pod
    refusals: tuple[str, ...] = ()


# -- priority -----------------------------------------------------------------------------------------------------------

#: The priority classes that every cluster has. They cannot be changed.
SYSTEM_PRIORITY_CLASSES: Final = {
    "system-cluster-critical": PriorityClass(
        metadata=ObjectMeta(name="system-cluster-critical"),
        value=2_000_000_000,
        description=(
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."
        ),
    ),
    "system-node-critical": PriorityClass(
        metadata=ObjectMeta(name="system-node-critical"),
        value=2_000_001_000,
        description="Used for system critical pods that must not be moved from their current node.",
    ),
}


def resolve_priority(pod: Pod, classes: Mapping[str, PriorityClass]) -> Admitted:
    """Set the pod's priority and preemption policy from its priority class, or from the cluster's default class.

    ``classes`` are the cluster's own classes, by name. A pod that has a priority keeps it, whatever its class says, because
    pods from a dump look like that. An unknown class leaves the pod without a priority, which counts as 0.
    """
    spec = pod.spec
    found = _class_named(spec.priority_class_name, classes)
    if found is None and spec.priority_class_name:
        return Admitted(pod, (_no_class(spec.priority_class_name),))
    name = spec.priority_class_name or (found.metadata.name if found else "")
    value = found.value if found else 0
    policy = (found and found.preemption_policy) or "PreemptLowerPriority"
    given = value if spec.priority is None else spec.priority
    given_policy = spec.preemption_policy or policy
    resolved = replace(pod, spec=replace(spec, priority=given, priority_class_name=name, preemption_policy=given_policy))
    return Admitted(pod if resolved == pod else resolved, tuple(_contradictions(given, value, given_policy, policy)))


def _class_named(name: str, classes: Mapping[str, PriorityClass]) -> PriorityClass | None:
    """Return the class of that name; the cluster's default class if the name is empty."""
    if not name:
        return default_priority_class(classes.values())
    return SYSTEM_PRIORITY_CLASSES.get(name) or classes.get(name)


def _no_class(name: str) -> str:
    return f"no PriorityClass with name {name} was found"


G = TypeVar("G", bound=PodGroup | CompositePodGroup)


def resolve_group_priority(group: G, classes: Mapping[str, PriorityClass]) -> tuple[G, tuple[str, ...]]:
    """Set a group's priority from its class or the cluster's default class; also return the reasons to reject it."""
    spec = group.spec
    found = _class_named(spec.priority_class_name, classes)
    if found is None and spec.priority_class_name:
        return group, (_no_class(spec.priority_class_name),)
    value = found.value if found else 0
    if spec.priority is not None and spec.priority != value:
        why = (
            f"priority set in the {_called(group)} ({spec.priority}) must match the priority computed ({value}) based on the "
            "priority class set in the spec"
        )
        return group, (why,)
    name = spec.priority_class_name or (found.metadata.name if found else "")
    return replace(group, spec=replace(spec, priority=value, priority_class_name=name)), ()


def resolve_group_preemption(group: G, classes: Mapping[str, PriorityClass]) -> tuple[G, tuple[str, ...]]:
    """Set the preemption policy of a group from its class; also return the reasons to reject it."""
    found, given = _class_named(group.spec.priority_class_name, classes), group.spec.preemption_policy
    policy = (found.preemption_policy if found else None) or "PreemptLowerPriority"
    if given is not None and given != policy:
        why = (
            f"the string value of PreemptionPolicy ({given}) must not be provided in {_called(group)} spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        return group, (why,)
    return replace(group, spec=replace(group.spec, preemption_policy=policy)), ()


def _called(group: PodGroup | CompositePodGroup) -> str:
    return "pod group" if isinstance(group, PodGroup) else "composite pod group"


def _contradictions(given: int, value: int, given_policy: str, policy: str) -> Iterable[str]:
    if given != value:
        yield (
            f"the integer value of priority ({given}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
    if given_policy != policy:
        yield (
            f"the string value of PreemptionPolicy ({given_policy}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )


def default_priority_class(classes: Iterable[PriorityClass]) -> PriorityClass | None:
    """Return the cluster's default class, None if there is none. Of several, the lowest value wins, then the first name."""
    marked = [found for found in classes if found.global_default]
    return min(marked, key=lambda found: (found.value, found.metadata.name), default=None)


# -- limit ranges -------------------------------------------------------------------------------------------------------


def limit_range_defaults(pod: Pod, limit_ranges: Iterable[LimitRange]) -> Pod:
    """Return a pod with the default limits and requests of its namespace for the containers that set none.

    ``limit_ranges`` are those of the pod's namespace. They apply in the order of their names; the first to set a value wins.
    """
    for limit_range in sorted(limit_ranges, key=lambda one: one.metadata.name):
        limits: ResourceList = {}
        requests: ResourceList = {}
        for item in default_limit_range(limit_range).spec.limits:
            if item.type == "Container":
                limits.update(item.default)
                requests.update(item.default_request)
        spec = pod.spec
        containers = tuple(_filled(container, limits, requests) for container in spec.containers)
        inits = tuple(_filled(container, limits, requests) for container in spec.init_containers)
        if (containers, inits) != (spec.containers, spec.init_containers):
            pod = _annotated(replace(pod, spec=replace(spec, containers=containers, init_containers=inits)), pod)
    return pod


def out_of_pods_bounds(pod: Pod, limit_ranges: Iterable[LimitRange]) -> tuple[str, ...]:
    """Check a pod against its namespace's limit ranges in order of name; return the violations of the first one broken."""
    for limit_range in sorted(limit_ranges, key=lambda one: one.metadata.name):
        if refusals := tuple(_out_of_bounds(pod, default_limit_range(limit_range))):
            return refusals
    return ()


def _filled(container: Container, limits: ResourceList, requests: ResourceList) -> Container:
    resources = container.resources
    filled = replace(resources, limits={**limits, **resources.limits}, requests={**requests, **resources.requests})
    return container if filled == resources else replace(container, resources=filled)


def _annotated(pod: Pod, before: Pod) -> Pod:
    """Annotate the pod with the defaults that its containers got."""
    texts: list[str] = []
    for what, held, given in (
        ("container", before.spec.containers, pod.spec.containers),
        ("init container", before.spec.init_containers, pod.spec.init_containers),
    ):
        for old, new in zip(held, given, strict=True):
            for side in ("requests", "limits"):
                names = sorted(getattr(new.resources, side).keys() - getattr(old.resources, side).keys())
                if names:
                    texts.append(f"{', '.join(names)} {side.removesuffix('s')} for {what} {new.name}")
    if not texts:
        return pod
    annotations = {**pod.metadata.annotations, _NOTE: f"LimitRanger plugin set: {'; '.join(texts)}"}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


_NOTE = "kubernetes.io/limit-ranger"


def _out_of_bounds(pod: Pod, limit_range: LimitRange) -> Iterable[str]:
    for item in limit_range.spec.limits:
        if item.type == "Container":
            for container in (*pod.spec.containers, *pod.spec.init_containers):
                yield from _violations(item, container.resources.requests, container.resources.limits)
        elif item.type == "Pod":
            yield from _violations(item, _of_pod(pod, "requests"), _of_pod(pod, "limits"))


def _of_pod(pod: Pod, side: str) -> ResourceList:
    """Return the pod's total requests or limits (``side``): the peak over its containers, overridden by pod-level resources."""
    found = total_amounts(pod.spec, lambda resources: getattr(resources, side))
    own_amounts: ResourceList = {} if pod.spec.resources is None else getattr(pod.spec.resources, side)
    return {**found, **own_amounts}


def out_of_claims_bounds(claim: PersistentVolumeClaim, limit_ranges: Iterable[LimitRange]) -> tuple[str, ...]:
    """Check a claim against its namespace's limit ranges in order of name; return the violations of the first one broken."""
    for limit_range in sorted(limit_ranges, key=lambda one: one.metadata.name):
        texts: list[str] = []
        for item in limit_range.spec.limits:
            if item.type == "PersistentVolumeClaim":
                asked = claim.spec.resources.requests
                for name, least in item.min.items():
                    texts += _beyond("minimum", item.type, name, least, request=asked.get(name))
                for name, most in item.max.items():
                    texts += _beyond("maximum", item.type, name, most, request=asked.get(name))
        if texts:
            return tuple(texts)
    return ()


def _violations(item: LimitRangeItem, requests: ResourceList, limits: ResourceList) -> Iterable[str]:
    for name, least in item.min.items():
        yield from _beyond("minimum", item.type, name, least, request=requests.get(name), limit=limits.get(name))
    for name, most in item.max.items():
        yield from _beyond("maximum", item.type, name, most, limit=limits.get(name), request=requests.get(name))
    for name, ratio in item.max_limit_request_ratio.items():
        yield from _apart(item.type, name, ratio, requests.get(name), limits.get(name))


def _beyond(which: str, kind: str, name: str, bound: Quantity, **amounts: Quantity | None) -> Iterable[str]:
    """Yield why a minimum or maximum does not hold: the first amount is absent, or the first of them that is beyond it."""
    opening = f"{which} {name} usage per {kind} is {bound}"
    for i, (what, amount) in enumerate(amounts.items()):
        if amount is None and not i:
            yield f"{opening}.  No {what} is specified"
            return
        if amount is not None and (parse(amount) < parse(bound) if which == "minimum" else parse(amount) > parse(bound)):
            yield f"{opening}, but {what} is {amount}"
            return


def _apart(kind: str, name: str, bound: Quantity, request: Quantity | None, limit: Quantity | None) -> Iterable[str]:
    opening = f"{name} max limit to request ratio per {kind} is {bound}"
    if request is None or not parse(request):
        yield f"{opening}, but no request is specified or request is 0"
    elif limit is None or not parse(limit):
        yield f"{opening}, but no limit is specified or limit is 0"
    elif parse(limit) * NANO_PER_UNIT > parse(bound) * parse(request):
        yield f"{opening}, but provided ratio is {parse(limit) / parse(request):f}"


# -- tolerations and runtime classes --------------------------------------------------------------------------------------

PATIENCE_S = 300
TROUBLES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def add_default_tolerations(pod: Pod) -> Pod:
    """Let the pod stay five minutes on a node that becomes unreachable or not ready, unless its tolerations say otherwise.

    Source  plugin/pkg/admission/defaulttolerationseconds/admission.go
    """
    held = pod.spec.tolerations
    added = tuple(
        Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=PATIENCE_S)
        for key in TROUBLES
        if not any(one.key in {"", key} and one.effect in {"", "NoExecute"} for one in held)
    )
    return replace(pod, spec=replace(pod.spec, tolerations=(*held, *added))) if added else pod


def apply_runtime_class(pod: Pod, classes: Mapping[str, RuntimeClass]) -> Admitted:
    """Add the overhead, node selector and tolerations of the pod's runtime class.

    Source  plugin/pkg/admission/runtimeclass/admission.go
    """
    spec = pod.spec
    if not spec.runtime_class_name:
        return Admitted(pod, (_LONE_OVERHEAD,) if spec.overhead else ())
    found = classes.get(spec.runtime_class_name)
    if found is None:
        return Admitted(pod, (f'pod rejected: RuntimeClass "{spec.runtime_class_name}" not found',))
    overhead = found.overhead.pod_fixed if found.overhead else {}
    scheduling = found.scheduling or RuntimeScheduling()
    refusals = [*_wrong_overhead(spec.overhead, found.overhead), *_wrong_selector(spec.node_selector, scheduling.node_selector)]
    held = frozenset(spec.tolerations)
    added = tuple(one for one in scheduling.tolerations if one not in held)
    changed = replace(
        spec,
        overhead=spec.overhead or overhead,
        node_selector={**scheduling.node_selector, **spec.node_selector},
        tolerations=(*spec.tolerations, *added),
    )
    return Admitted(pod if changed == spec else replace(pod, spec=changed), tuple(refusals))


_LONE_OVERHEAD = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


def _wrong_overhead(given: ResourceList, defined: Overhead | None) -> Iterable[str]:
    if not given:
        return
    if defined is None:
        yield _LONE_OVERHEAD
    elif {name: parse(one) for name, one in given.items()} != {name: parse(one) for name, one in defined.pod_fixed.items()}:
        yield "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"


def _wrong_selector(given: Mapping[str, str], defined: Mapping[str, str]) -> Iterable[str]:
    for key, value in defined.items():
        if given.get(key, value) != value:
            asked = f"runtimeClass.scheduling.nodeSelector[{key}] = {value}"
            yield f"conflict: {asked}; pod.spec.nodeSelector[{key}] = {given[key]}"


# -- storage classes ----------------------------------------------------------------------------------------------------

_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"


def default_storage_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """Return the default class for claims that name none: the newest that is marked as default, then the first by name."""
    marked = [found for found in classes if any(found.metadata.annotations.get(key) == "true" for key in _DEFAULT_CLASS)]
    marked.sort(key=lambda found: found.metadata.name)
    # A stable sort: among classes of the same age the first name stays first. Times are RFC 3339, which sort as text.
    marked.sort(key=lambda found: found.metadata.creation_timestamp or "", reverse=True)
    return marked[0] if marked else None


def set_default_storage_class(claim: PersistentVolumeClaim, classes: Iterable[StorageClass]) -> PersistentVolumeClaim:
    """Set the cluster's default class, if there is one, on a claim that names no class."""
    if claim.spec.storage_class_name is not None or _OLD_CLASS in claim.metadata.annotations:
        return claim
    found = default_storage_class(classes)
    return claim if found is None else replace(claim, spec=replace(claim.spec, storage_class_name=found.name))
