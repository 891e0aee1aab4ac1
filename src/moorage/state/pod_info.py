"""A pod with the data that plugins derive from it: requests, host ports, compiled affinity terms.

``PodInfo`` stands for a pod throughout the scheduler and has the pod's attributes (``spec``, ``labels``, ``namespace`` …).
Derived data is computed at the first access and kept in ``__dict__``. Infos of pods of one shape share this dictionary, so what
is computed for one of them is known for all, and memory holds it once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import astuple, force_setattr, replace

from moorage.api.core import ClaimSource, ObjectMeta, Pod, PodResourceClaim, PodSpec, PodStatus, Volume
from moorage.api.packing import pack
from moorage.api.pod_requests import PodRequests, RequestOptions, pod_requests, resize_is_infeasible
from moorage.state.affinity_terms import AffinityTerm, AffinityTerms, WeightedTerm, compile_affinity
from moorage.state.lazy import lazy
from moorage.state.pod_volumes import PodVolumes, pod_volumes
from moorage.state.spread_constraints import SpreadConstraint, compile_spread_constraint

__all__ = ["AffinityTerm", "HostPort", "PodInfo", "WeightedTerm", "infos_of", "parts_of"]


_ENCODER: Final = msgspec.msgpack.Encoder()
#: Attributes that depend on a pod's shape alone. (``volumes`` does not: ephemeral claims are named after the pod.)
_OF_SHAPE: Final = (
    "needs", "host_ports", "required_affinity", "required_anti_affinity", "preferred_affinity", "preferred_anti_affinity",
    "spread_constraints", "label_class", "group_key", "_affinity_terms", "_kept",
)  # fmt: skip
#: Those that are the same for all pods with the same spec and status.
_OF_SPEC: Final = ("needs", "host_ports")
_ANY_CLAIM: Final = ClaimSource()
_AT_NODE: Final = PodSpec.__struct_fields__.index("node_name")

T = TypeVar("T")


class HostPort(NamedTuple):
    """A host port that a pod uses. ``0.0.0.0`` stands for all addresses, also where the pod names none."""

    protocol: str
    ip: str
    port: int

    def clashes(self, held: HostPort) -> bool:
        """Return True if pods with these ports cannot share a node."""
        if self.protocol != held.protocol or self.port != held.port:
            return False
        return self.ip == held.ip or "0.0.0.0" in (self.ip, held.ip)  # noqa: S104 (an address to compare, not to bind)


_NO_PORTS: Final[frozenset[HostPort]] = frozenset()


def _encoded(value: object) -> bytes:
    try:
        return _ENCODER.encode(value)
    except OverflowError:  # an integer beyond 64 bits, in a field that is kept as it is given
        return pack(value)


class PodInfo:
    """A pod and its derived data. Two infos are equal only if they are the same object; pods are identified by UID."""

    __slots__ = ("__dict__", "labels", "name", "namespace", "pod", "priority", "spec", "status", "uid")

    def __init__(self, pod: Pod) -> None:
        meta, spec = pod.metadata, pod.spec
        self.pod = pod
        self.uid = meta.uid
        self.name = meta.name
        self.namespace = meta.namespace
        self.labels = meta.labels
        self.spec: PodSpec = spec
        self.status: PodStatus = pod.status
        self.priority: int = spec.priority or 0

    def __repr__(self) -> str:
        return f"PodInfo({self.key})"

    def shape(self) -> bytes:
        """Return the pod encoded without its name, UID, annotations and such: pods of one template have equal shapes."""
        meta = self.pod.metadata
        return _encoded(
            (self.namespace, self.labels, meta.owner_references, meta.deletion_timestamp, self.spec, self.pod.status)
        )

    @property
    def names_claims(self) -> bool:
        """True if the pod names resource claims or PersistentVolumeClaims, which differ between pods of one template."""
        spec = self.spec
        if not spec.resource_claims and not spec.volumes:
            return False
        return bool(spec.resource_claims) or any(volume.persistent_volume_claim is not None for volume in spec.volumes)

    def shape_without_claims(self) -> bytes:
        """Return the shape without the names of the pod's resource claims and PersistentVolumeClaims."""
        pod = self.pod
        claims = tuple([PodResourceClaim(name=claim.name) for claim in pod.spec.resource_claims])
        spec = replace(pod.spec, resource_claims=claims, volumes=tuple(map(_without_claim, pod.spec.volumes)))
        status = replace(pod.status, resource_claim_statuses=())
        owners = pod.metadata.owner_references
        return b"claims" + _encoded((self.namespace, self.labels, owners, pod.metadata.deletion_timestamp, spec, status))

    def waiting_shape(self) -> bytes:
        """Return the shape without the pod's conditions, whose times and messages differ between pods that wait for a node."""
        meta, status = self.pod.metadata, self.pod.status
        if status.conditions:
            status = replace(status, conditions=())
        return _encoded((self.namespace, self.labels, meta.owner_references, meta.deletion_timestamp, self.spec, status))

    def share(self, twin: PodInfo) -> None:
        """Use the derived data of a pod of the same shape."""
        if twin.shares_all:
            self.__dict__ = twin.__dict__
        else:
            self.__dict__.update(twin.facts_of_shape())

    def is_twin_of(self, other: PodInfo) -> bool:
        """Return True if the pods have one shape, apart from their nodes and from what a kubelet reports."""
        meta, its = self.pod.metadata, other.pod.metadata
        return (
            self.namespace == other.namespace
            and self._has_owner_and_labels_of(other)
            and meta.deletion_timestamp == its.deletion_timestamp
            and _have_equal_claims(self.status, other.status)
            and _without_node(self.spec) == _without_node(other.spec)
        )

    @property
    def shares_all(self) -> bool:
        """True if all derived data is the same for all pods of the shape: no volume is known to matter, or could."""
        return not self.spec.volumes or self.__dict__.get("volumes", self) is None

    def merge(self, twin: PodInfo) -> None:
        """Replace spec, status, labels and owners by those of a pod of the same shape, so that memory holds them once.

        This writes to the frozen ``pod``, which other objects refer to; the new values equal the old ones.
        """
        pod, its = self.pod, twin.pod
        if pod.spec is its.spec:
            return
        force_setattr(pod, "spec", its.spec)
        force_setattr(pod, "status", its.status)
        force_setattr(pod.metadata, "labels", its.metadata.labels)
        force_setattr(pod.metadata, "owner_references", its.metadata.owner_references)
        self.spec, self.status, self.labels = its.spec, its.status, its.metadata.labels

    def facts_of_shape(self) -> dict[str, Any]:
        """Return, by attribute, the data computed so far that is the same for all pods of the shape."""
        its = self.__dict__
        facts: dict[str, Any] = {fact: its[fact] for fact in _OF_SHAPE if fact in its}
        if its.get("volumes", self) is None:  # no pod of the shape has a volume that matters
            facts["volumes"] = None
        return facts

    def facts_of_spec(self) -> dict[str, Any]:
        """Return, by attribute, the data computed so far that is the same for all pods with the same spec and status."""
        its = self.__dict__
        return {fact: its[fact] for fact in _OF_SPEC if fact in its}

    def keep(self, what: Hashable, version: Hashable, work_out: Callable[[], T]) -> T:
        """Return a value that depends on the pod's shape and on data of this ``version``; computed once per shape.

        ``work_out`` computes the value, and runs again when the version differs. ``what`` is the key of the value.
        """
        held = self._kept.get(what)
        if held is None or held[0] != version:
            held = self._kept[what] = version, work_out()
        kept: T = held[1]
        return kept

    @lazy
    def _kept(self) -> dict[Hashable, tuple[Hashable, Any]]:
        return {}

    def on(self, node: str) -> PodInfo:
        """Return the same pod with ``nodeName`` set."""
        placed = PodInfo(replace(self.pod, spec=replace(self.spec, node_name=node)))
        placed.takes_over(self)
        return placed

    def bound(self, pod: Pod) -> PodInfo:
        """Return the info of ``pod``, the bound version of this pod, which has the same derived data."""
        info = PodInfo.__new__(PodInfo)
        info.pod, info.spec, info.status = pod, pod.spec, pod.status
        info.uid, info.name, info.namespace = self.uid, self.name, self.namespace
        info.labels, info.priority = self.labels, self.priority
        info.__dict__ = self.__dict__
        return info

    def takes_over(self, other: PodInfo) -> bool:
        """Copy the derived data of ``other``, if the pods differ only in their node. Return whether it was copied."""
        mine, its = self.spec, other.spec
        same = (
            (self.labels is other.labels or self._has_owner_and_labels_of(other))
            and mine.containers is its.containers
            and mine.init_containers is its.init_containers
            and mine.affinity is its.affinity
            and mine.volumes is its.volumes
            and mine.resources is its.resources
            and mine.overhead is its.overhead
            and mine.scheduling_group is its.scheduling_group
            and self.status.container_statuses is other.status.container_statuses
            and self.status.node_allocatable_resource_claim_statuses == other.status.node_allocatable_resource_claim_statuses
            and self.metadata.deletion_timestamp == other.metadata.deletion_timestamp
        )
        if not same and not self._reads_like(other):
            return False
        if mine.containers is not its.containers:  # a newly decoded pod
            self.spec = replace(its, node_name=mine.node_name)
            self.labels = other.labels
            force_setattr(self.pod, "spec", self.spec)
            force_setattr(self.pod.metadata, "labels", self.labels)
        alike = _without_node(self.spec) == _without_node(its)
        self.__dict__ = other.__dict__ if alike else {**other.__dict__, **self.__dict__}
        return True

    def _reads_like(self, other: PodInfo) -> bool:
        """Return True if a newly decoded pod equals ``other``, except its node, and no kubelet has reported on either."""
        mine, its = self.pod.metadata, other.pod.metadata
        status, held = self.status, other.status
        return (
            self._has_owner_and_labels_of(other)
            and mine.deletion_timestamp == its.deletion_timestamp
            and not _is_reported_on(status)
            and not _is_reported_on(held)
            and _have_equal_claims(status, held)
            and replace(self.spec, node_name=other.spec.node_name) == other.spec
        )

    def _has_owner_and_labels_of(self, other: PodInfo) -> bool:
        return self.labels == other.labels and self.pod.metadata.owner_references == other.pod.metadata.owner_references

    @property
    def metadata(self) -> ObjectMeta:
        """The pod's name, namespace, labels, annotations and owners."""
        return self.pod.metadata

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def terminating(self) -> bool:
        """True if the pod is being deleted."""
        return self.pod.metadata.deletion_timestamp is not None

    @lazy
    def needs(self) -> PodRequests:
        """The pod's resource requests; see ``PodRequests`` for units."""
        return pod_requests(self.pod)

    def needs_under(self, options: RequestOptions) -> PodRequests:
        """Return the pod's resource requests where some parts of the pod do not count."""
        status = self.status  # as ``is_plain``, in line because it runs several times for each pod
        reported = status.container_statuses or status.init_container_statuses or status.resources is not None
        if self.spec.resources is None and not reported and not (status.conditions and resize_is_infeasible(self.pod)):
            return self.needs
        return pod_requests(self.pod, options)

    @property
    def requests(self) -> Mapping[str, int]:
        """Resource name to amount: cpu in millicores, memory and storage in bytes, others in counts."""
        return self.needs.requests

    @lazy
    def host_ports(self) -> frozenset[HostPort]:
        """Host ports of containers and of sidecars (restartable init containers)."""
        spec = self.spec
        holders = spec.containers
        if spec.init_containers:
            holders = (*holders, *[one for one in spec.init_containers if one.restart_policy == "Always"])
        held = [port for container in holders for port in container.ports if port.host_port > 0]
        if not held:
            return _NO_PORTS
        return frozenset(
            [
                HostPort(port.protocol or "TCP", port.host_ip or "0.0.0.0", port.host_port)  # noqa: S104
                for port in held
            ]
        )

    @lazy
    def volumes(self) -> PodVolumes | None:
        """The claims and disks that the pod uses; None if it has no volume that matters to scheduling."""
        return pod_volumes(self.pod)

    @lazy
    def required_affinity(self) -> tuple[AffinityTerm, ...]:
        return self._affinity_terms.required

    @lazy
    def required_anti_affinity(self) -> tuple[AffinityTerm, ...]:
        return self._affinity_terms.required_anti

    @lazy
    def preferred_affinity(self) -> tuple[WeightedTerm, ...]:
        return self._affinity_terms.preferred

    @lazy
    def preferred_anti_affinity(self) -> tuple[WeightedTerm, ...]:
        return self._affinity_terms.preferred_anti

    @property
    def affinity_fault(self) -> str:
        """Upstream's parse error of the affinity terms; empty if there is none. A kind with a malformed term has no terms.

        The API server does not check these selectors, so a pod that was bound by hand may have an invalid one.
        """
        return self._affinity_terms.fault

    def with_affinity_terms(self, terms: AffinityTerms) -> PodInfo:
        """Return a copy of this info with these affinity terms instead of those of its spec."""
        other = PodInfo(self.pod)
        other.__dict__["_affinity_terms"] = terms
        return other

    @lazy
    def spread_constraints(self) -> tuple[SpreadConstraint, ...]:
        """The pod's own topology spread constraints, compiled.

        Raises  SelectorError if a selector is malformed
        """
        return tuple(compile_spread_constraint(c, self.labels) for c in self.spec.topology_spread_constraints)

    @lazy
    def group_key(self) -> str | None:
        """``namespace/name`` of the pod's group; None if it names none."""
        group = self.spec.scheduling_group
        return None if group is None else f"{self.namespace}/{group.pod_group_name or ''}"

    @property
    def has_affinity(self) -> bool:
        """True if the pod has a ``podAffinity`` or ``podAntiAffinity`` field, even an empty one."""
        affinity = self.spec.affinity
        return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)

    @lazy
    def label_class(self) -> tuple[str, tuple[tuple[str, str], ...], bool]:
        """Namespace, sorted labels, terminating: all that a pod selector or matcher depends on."""
        return self.namespace, tuple(sorted(self.labels.items())), self.terminating

    @lazy
    def _affinity_terms(self) -> AffinityTerms:
        return compile_affinity(self.namespace, self.spec.affinity)


def _without_node(spec: PodSpec) -> tuple[Any, ...]:
    """Return all fields of a spec but the node's name. Two such tuples of specs that share their parts are compared fast."""
    fields = astuple(spec)
    return fields[:_AT_NODE] + fields[_AT_NODE + 1 :]


def _without_claim(volume: Volume) -> Volume:
    return volume if volume.persistent_volume_claim is None else replace(volume, persistent_volume_claim=_ANY_CLAIM)


def _have_equal_claims(status: PodStatus, other: PodStatus) -> bool:
    """Return True if two statuses say the same of claims, and of what their devices take of the node."""
    return (
        status.resource_claim_statuses == other.resource_claim_statuses
        and status.extended_resource_claim_status == other.extended_resource_claim_status
        and status.node_allocatable_resource_claim_statuses == other.node_allocatable_resource_claim_statuses
    )


def _is_reported_on(status: PodStatus) -> bool:
    """Return True once the kubelet has reported a container status on which the pod's requests may depend."""
    return bool(
        status.container_statuses
        or status.init_container_statuses
        or status.resources is not None
        or status.allocated_resources
    )


# -- shared facts ------------------------------------------------------------------------------------------------------
# Infos of many pods at once: pods that have the same parts share the data derived from them.
#
# Decoders give the pods of one template the same objects for containers, labels and so on. Comparing identities takes a
# fraction of the time of deriving requests, ports and terms from each pod.


def infos_of(pods: Sequence[Pod]) -> list[PodInfo]:
    """Return an info for each pod, with all data that the node table counts.

    Raises  QuantityError for requests that cannot be parsed
    """
    twins: dict[Hashable, PodInfo] = {}
    #: By the ids of containers and labels, the last pod whose copies share all, and the fields of its spec.
    patterns: dict[Hashable, tuple[PodInfo, tuple[Any, ...]]] = {}
    infos = list(map(PodInfo, pods))
    for info in infos:
        key = id(info.spec.containers), id(info.labels)
        if (pattern := patterns.get(key)) is not None and _has_parts_of(info, pattern[0]):
            if _without_node(info.spec) == pattern[1]:
                info.__dict__ = pattern[0].__dict__
                continue
            if not info.has_affinity:
                its = pattern[0]
                info.needs, info.host_ports, info.label_class, info.volumes = its.needs, its.host_ports, its.label_class, None
                continue
        parts = parts_of(info.pod)
        twin = twins.get(parts)
        if twin is None:
            twins[parts] = info
            _derive(info)
        elif info.is_twin_of(twin):
            info.share(twin)
        else:
            info.needs, info.host_ports, info.label_class = twin.needs, twin.host_ports, twin.label_class
            if info.has_affinity:
                info.share(twin)
            if twin.volumes is None:
                info.volumes = None
        if info.shares_all:
            patterns[key] = info, _without_node(info.spec)
    return infos


def _has_parts_of(info: PodInfo, other: PodInfo) -> bool:
    """Return True if a pod shares all with another on which derived data depends, except affinity."""
    spec, its, status, held = info.spec, other.spec, info.status, other.status
    meta, its_meta = info.pod.metadata, other.pod.metadata
    return (
        meta.owner_references is its_meta.owner_references
        and info.namespace == other.namespace
        and meta.deletion_timestamp == its_meta.deletion_timestamp
        and spec.init_containers is its.init_containers
        and spec.volumes is its.volumes
        and spec.resources is its.resources
        and spec.overhead == its.overhead
        and status.container_statuses is held.container_statuses
        and status.init_container_statuses is held.init_container_statuses
        and status.resources is held.resources
        and status.allocated_resources == held.allocated_resources
        and _have_equal_claims(status, held)
        and (status.conditions is held.conditions or resize_is_infeasible(info.pod) == resize_is_infeasible(other.pod))
    )


def _derive(info: PodInfo) -> None:
    info.needs, info.host_ports, info.volumes  # noqa: B018 (computed here, for all twins)
    if info.has_affinity:
        info.required_affinity, info.required_anti_affinity  # noqa: B018
        info.preferred_affinity, info.preferred_anti_affinity  # noqa: B018


def parts_of(pod: Pod) -> Hashable:
    """Return a key that is equal only for pods whose derived data is equal, as long as the pods exist."""
    spec, meta, status = pod.spec, pod.metadata, pod.status
    affinity = spec.affinity
    reported: Hashable = None
    if affinity is not None and affinity.pod_affinity is None and affinity.pod_anti_affinity is None:
        affinity = None  # no derived data depends on affinity to nodes, which differs between the pods of a DaemonSet
    taken = status.node_allocatable_resource_claim_statuses
    infeasible = resize_is_infeasible(pod)  # no other condition matters
    said = status.container_statuses or status.init_container_statuses or status.resources or status.allocated_resources
    if said or taken or infeasible:
        held = (status.container_statuses, status.init_container_statuses, status.resources, taken)
        allocated = id(status.allocated_resources) if status.allocated_resources else 0  # each decoded pod has a {} of its own
        reported = (*map(id, held), allocated, infeasible)
    return (
        meta.namespace, id(meta.labels) if meta.labels else 0, meta.deletion_timestamp is None,
        id(spec.containers), id(spec.init_containers),
        id(affinity), id(spec.volumes), id(spec.resources), id(spec.overhead) if spec.overhead else 0, reported,
    )  # fmt: skip
