"""The input of a simulation: a cluster's objects by kind, and a report of what was read, ignored and missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from moorage.api.admission import RuntimeClass
from moorage.api.core import LimitRange, Namespace, Node, Object, Pod, ReplicationController, ResourceQuota, Service
from moorage.api.custom_objects import CustomKind, CustomObject, guess_plural, read_custom, with_identity
from moorage.api.decode import decode
from moorage.api.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from moorage.api.documents.object_fields import generated_name, stable_uid
from moorage.api.kinds import KINDS
from moorage.api.pod_groups import CompositePodGroup, PodGroup
from moorage.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from moorage.api.workloads import (
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    StatefulSet,
)
from moorage.basis.inputs.components import Component
from moorage.basis.inputs.objects import FoundObject
from moorage.basis.printable import one_line
from moorage.errors import InputError


@dataclass(frozen=True, slots=True)
class Unused:
    """Objects of one kind that are ignored, and why; ``unknown``: Moorage does not know the kind."""

    kind: str
    api_version: str
    count: int
    why: str
    unknown: bool = False

    def __str__(self) -> str:
        version = "" if self.api_version == "v1" else f" {self.api_version}"
        return one_line(f"{self.count} {self.kind}{version}: {self.why}")


@dataclass(frozen=True, slots=True)
class InputReport:
    """A report on the input: the number of objects of each kind, used and unused, and notes of one line.

    ``left_out``        those of the notes that name objects which cannot be read
    ``taken_at``        when the objects were read from a cluster, if that is known
    ``server_version``  the version of the cluster's API server, such as ``v1.34.1``, if that is known
    """

    read: tuple[tuple[str, int], ...] = ()
    unused: tuple[Unused, ...] = ()
    notes: tuple[str, ...] = ()
    taken_at: str = ""
    server_version: str = ""
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", tuple(map(one_line, self.notes)))
        object.__setattr__(self, "left_out", tuple(map(one_line, self.left_out)))

    def lines(self) -> list[str]:
        """Return the report for the user, one sentence a line; empty if all of the input was used unchanged."""
        return [*map(str, self.unused), *self.notes]


#: An object: the field of ``ClusterInput`` that holds it, its namespace, and its name.
WrittenKey: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class WrittenObjects:
    """Objects as they were written, as JSON: what admission policies read of them is more than what scheduling reads.

    ``policies``    the admission policies and their bindings, each with its place in the input
    ``parameters``  objects that can be parameters of policies, and the definitions of custom kinds
    ``objects``     workloads, pods without an owner, and all objects without a creation time
    ``replaced``    of those, the earlier form of objects that a change replaces
    """

    policies: Mapping[WrittenKey, tuple[str, bytes]] = field(default_factory=dict)
    parameters: Mapping[WrittenKey, tuple[str, bytes]] = field(default_factory=dict)
    objects: Mapping[WrittenKey, bytes] = field(default_factory=dict)
    replaced: Mapping[WrittenKey, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInput:
    """Every object that simulations read, each kind in the order it was given.

    ``others`` are objects of kinds without a field here, ``custom`` objects of kinds that plugins name, ``job_objects`` jobs of
    kinds that are none of Kubernetes' own (``job_kinds``), ``components`` what runs beside the scheduler. ``written`` is for
    admission policies, None if there are none.
    """

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    services: tuple[Service, ...] = ()
    replication_controllers: tuple[ReplicationController, ...] = ()
    limit_ranges: tuple[LimitRange, ...] = ()
    resource_quotas: tuple[ResourceQuota, ...] = ()
    deployments: tuple[Deployment, ...] = ()
    replica_sets: tuple[ReplicaSet, ...] = ()
    stateful_sets: tuple[StatefulSet, ...] = ()
    daemon_sets: tuple[DaemonSet, ...] = ()
    jobs: tuple[Job, ...] = ()
    cron_jobs: tuple[CronJob, ...] = ()
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    pod_groups: tuple[PodGroup, ...] = ()
    composite_pod_groups: tuple[CompositePodGroup, ...] = ()
    runtime_classes: tuple[RuntimeClass, ...] = ()
    persistent_volumes: tuple[PersistentVolume, ...] = ()
    persistent_volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    csi_nodes: tuple[CSINode, ...] = ()
    csi_drivers: tuple[CSIDriver, ...] = ()
    csi_storage_capacities: tuple[CSIStorageCapacity, ...] = ()
    volume_attachments: tuple[VolumeAttachment, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()
    resource_claim_templates: tuple[ResourceClaimTemplate, ...] = ()
    resource_slices: tuple[ResourceSlice, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    device_taint_rules: tuple[DeviceTaintRule, ...] = ()
    others: tuple[Object, ...] = ()
    custom: tuple[CustomObject, ...] = ()
    job_objects: tuple[CustomObject, ...] = ()
    components: tuple[Component, ...] = ()
    written: WrittenObjects | None = None
    report: InputReport = InputReport()


#: The fields that hold the objects of one kind: ``Kind.slot``.
SLOTS: Final = frozenset(field.name for field in fields(ClusterInput)) - {
    "components",
    "custom",
    "job_objects",
    "others",
    "report",
    "written",
}


# -- dump record -------------------------------------------------------------------------------------------------------
# The record that ``moorage dump`` writes into a dump: when and where it was taken, and what could not be read.


class _Name(NamedTuple):
    api_version: str
    kind: str


DUMP_RECORD: Final = _Name("moorage.dev/v1", "DumpRecord")


NOT_SERVED: Final = "not served"
_DEVICES: Final = "resource.k8s.io"


class UnreadKind(Struct, frozen=True, omit_defaults=True):
    """A kind, by its plural, that was not read: ``forbidden`` or ``not served``; or ``objects`` of it are ``unreadable``."""

    kind: str
    why: str
    objects: int = 0

    def __str__(self) -> str:
        return f"{f'{self.objects} ' if self.objects else ''}{self.kind} were not read: {self.why}"


#: Kinds that many clusters do not serve: with a feature gate or a --runtime-config only, or only in newer releases.
_RARE: Final = frozenset(kind.resource for kind in KINDS if kind.gate or kind.group == _DEVICES)


def unread_notes(missing: Iterable[UnreadKind], pods: Iterable[Pod]) -> list[str]:
    """Return a sentence for each kind that was not read.

    A kind that ordinary clusters do not serve has none, unless one of the pods refers to its objects.
    """
    missing = list(missing)
    if not missing:
        return []
    needed: set[str] = set()
    for pod in pods:
        needed |= {"podgroups"} if pod.spec.scheduling_group is not None else set()
        needed |= {"resourceclaims", "resourceslices", "deviceclasses"} if pod.spec.resource_claims else set()
    return [str(one) for one in missing if one.why != NOT_SERVED or one.kind not in _RARE - needed]


class DumpRecord(Struct, frozen=True, rename="camel"):
    """How a dump was taken."""

    metadata: dict[str, str] = msgspec.field(default_factory=lambda: {"name": "dump"})
    taken_at: str = ""
    server: str = ""
    server_version: str = ""
    not_read: tuple[UnreadKind, ...] = ()

    def notes(self, pods: Iterable[Pod]) -> list[str]:
        """Return notes for the user of the dump, one sentence a line. ``pods`` are those in the dump."""
        where = f"taken from {self.server}" if self.server else "taken"
        return [
            *([f"{where} at {self.taken_at}"] if self.taken_at else []),
            *unread_notes(self.not_read, pods),
        ]


def read_record(found: FoundObject) -> DumpRecord:
    """Return the record in a dump.

    Raises  InputError
    """
    return decode(found.payload if isinstance(found.payload, dict) else bytes(found.payload), DumpRecord, found.where)


# -- custom kinds ------------------------------------------------------------------------------------------------------
# Objects of kinds that plugins name: which of them a dump holds, and the names of their kinds.
#
# A plugin names a kind by its plural, an object by its singular. The kind's CustomResourceDefinition connects them, but a
# dump may lack it; the plural is then guessed as kubectl guesses it. A definition may follow its objects, so objects are kept
# as they are until everything is read.

_DEFINITION: Final = "CustomResourceDefinition"
_NAMESPACED, _CLUSTER_SCOPED = "Namespaced", "Cluster"


class _Names(Object):
    kind: str = ""
    plural: str = ""


class _DefinitionSpec(Object):
    group: str = ""
    names: _Names = _Names()
    scope: str = ""


class _Definition(Object):
    spec: _DefinitionSpec = _DefinitionSpec()


class ReadObject(NamedTuple):
    """An object of a named kind; ``kind`` is the kind in the object itself."""

    obj: CustomObject
    kind: str
    where: str

    @property
    def title(self) -> str:
        space = f"{self.obj.namespace}/" if self.obj.namespace else ""
        return f"{self.kind} {space}{self.obj.name}"


#: How the groups of configuration files begin.
_FILE_GROUP: Final = "config."


class CustomReader:
    """Keeps objects that may be of a named kind until ``objects`` is called. Those of ``namespaced`` kinds have a namespace."""

    def __init__(self, names: Iterable[str], namespaced: Collection[str] = ()) -> None:
        self._namespaced = frozenset(namespaced)
        kinds = (CustomKind.parse(name) for name in names)
        self._kinds = tuple(kind for kind in kinds if kind is not None)
        self._versions = {kind.api_version for kind in self._kinds}
        self._definitions: dict[tuple[str, str], _DefinitionSpec] = {}
        self._kept: list[FoundObject] = []

    def take(self, found: FoundObject) -> bool:
        """Examine an object; return True if this reader keeps it, so that the caller need not count it as unused."""
        if self._kinds and found.kind == _DEFINITION and found.api_version.startswith("apiextensions.k8s.io/"):
            payload = found.payload if isinstance(found.payload, dict) else bytes(found.payload)
            spec = decode(payload, _Definition, found.where).spec
            self._definitions[spec.group, spec.names.kind] = spec
        # The core group has no definitions, so an object's kind decides at once.
        kept = found.api_version in self._versions and ("/" in found.api_version or self._kind_of(found) is not None)
        if kept:
            self._kept.append(found)
        return kept

    def _plural(self, group: str, kind: str) -> str:
        spec = self._definitions.get((group, kind))
        return spec.names.plural if spec is not None and spec.names.plural else guess_plural(kind)

    def _kind_of(self, found: FoundObject) -> CustomKind | None:
        group = found.api_version.rpartition("/")[0]
        plural = self._plural(group, found.kind)
        return next((one for one in self._kinds if (one.api_version, one.plural) == (found.api_version, plural)), None)

    def unclaimed(self) -> Iterator[FoundObject]:
        """Yield the kept objects that turned out to be of no named kind."""
        return (found for found in self._kept if self._kind_of(found) is None)

    def why_unused(self, api_version: str, kind: str) -> str | None:
        """Return why objects of a named kind are not read in this version; None if no plugin names the kind."""
        group, slash, _ = api_version.rpartition("/")
        plural = self._plural(group, kind) if slash else ""
        named = next((one for one in self._kinds if slash and (one.group, one.plural) == (group, plural)), None)
        if named is None:
            return None
        instead = f"convert it to {named.api_version}" if str(named) in self._namespaced else f"a plugin names {named}"
        return f"this version of the API is not read; {instead}"

    def objects(
        self, on_fault: Callable[[InputError, FoundObject], None], check: Callable[[CustomObject], None]
    ) -> Iterator[ReadObject]:
        """Yield the objects of named kinds in input order; ``on_fault`` receives the invalid ones, also those that ``check``
        raises InputError for."""
        for number, found in enumerate(self._kept):
            kind = self._kind_of(found)
            if kind is None:
                continue
            try:
                read = ReadObject(self._identified(found, kind, number), found.kind, found.where)
                check(read.obj)
                yield read
            except InputError as error:
                lines = [line if line.startswith(found.where) else f"{found.where}: {line}" for line in str(error).splitlines()]
                on_fault(InputError(*lines), found)

    def _identified(self, found: FoundObject, kind: CustomKind, number: int) -> CustomObject:
        """Return the object with a name, a namespace, as its kind's scope requires if that is known, and a UID.

        ``number`` makes generated names unique.
        """
        payload = found.payload if isinstance(found.payload, dict) else bytes(found.payload)
        given = read_custom(payload, str(kind), found.where)
        given = given.having(apiVersion=found.api_version, kind=found.kind)  # items of a list may leave these out
        metadata = given.metadata
        if not metadata.name and kind.group.startswith(_FILE_GROUP):
            metadata = replace(metadata, name=found.kind.lower())  # a configuration file has no metadata
        if not metadata.name and not metadata.generate_name:
            raise InputError(f"{found.where}: {found.kind}: metadata.name: Required value: name or generateName is required")
        spec = self._definitions.get((kind.group, found.kind))
        scope = "" if spec is None else spec.scope
        is_spaced = scope == _NAMESPACED or (not scope and str(kind) in self._namespaced)
        space = "" if scope == _CLUSTER_SCOPED else metadata.namespace or ("default" if is_spaced else "")
        name = metadata.name or generated_name(metadata.generate_name, found.kind, space, str(number))
        uid = metadata.uid or stable_uid(found.kind, space, name)
        return with_identity(given, replace(metadata, name=name, namespace=space, uid=uid))
