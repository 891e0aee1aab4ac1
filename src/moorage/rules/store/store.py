"""The objects of a cluster in memory, with Kubernetes' resource versions, optimistic concurrency and deletion.

The store belongs to one thread; every call is atomic and does no I/O. The caller provides the clock, the random source and
the key that signs continue tokens. Documents that are passed in belong to the store afterwards. The store returns records,
whose bytes are sent to clients unchanged.

A call that raises ``ApiError`` changes nothing, and neither does a dry run.

Source  apiserver, pkg/registry/generic/registry/store.go, pkg/registry/rest and pkg/storage
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from moorage.api.core import Node, Pod
from moorage.api.documents.records import Confirm, Record, timestamp
from moorage.api.documents.resource_versions import check_sent_version, is_version
from moorage.api.documents.served_kinds import (
    ALL_GATES,
    KINDS,
    Document,
    ServedKind,
    group_versions,
    served,
    set_or_drop,
)
from moorage.api.documents.statuses import already_exists, conflict, forbidden, invalid, not_found, quoted, unknown
from moorage.api.feature_gates import FeatureGates
from moorage.api.fields.managed_fields import FieldManager, equal_but_times, fields_not_written, track
from moorage.api.schema.schemas import kind_schema
from moorage.api.schema.versions import convert, is_renamed
from moorage.errors import Fault
from moorage.rules.admission import admission_plugins
from moorage.rules.admission.defaulting import set_release_defaults
from moorage.rules.admission.device_validation import admin_access_faults
from moorage.rules.admission.pod_accounts import give_account
from moorage.rules.admission.pod_security import PodSecurity
from moorage.rules.admission.quota_admission import LimitedResource, charge_quotas
from moorage.rules.admission.quota_usage import Facts
from moorage.rules.admission.services import (
    allocate_addresses,
    drop_unused_fields,
    keep_addresses,
    requested_address_faults,
)
from moorage.rules.admission.strategy import (
    Admitted,
    decode_document,
    prepare_adopted,
    prepare_create,
    prepare_update,
    set_defaults_and_decode,
    set_first_defaults,
)
from moorage.rules.admission.update_validation import needs_version, unversioned
from moorage.rules.store import deletion
from moorage.rules.store import watches as watch_cache
from moorage.rules.store.admission_policies import AdmissionPolicies
from moorage.rules.store.custom_records import convert_record
from moorage.rules.store.definitions import DEFINITIONS, Defer, Definitions, mark_for_cleanup
from moorage.rules.store.deletion import NO_OPTIONS, DeleteOptions
from moorage.rules.store.list_selection import Selection
from moorage.rules.store.object_reader import ObjectReader
from moorage.rules.store.policy_requests import requester, sign_with_requester, unjudged
from moorage.rules.store.raw_fields import RawFields
from moorage.rules.store.watches import KindStore, StoreChange

#: Maximum size of a stored object in bytes of JSON: the default limit of etcd.
MAX_OBJECT: Final = 3 << 19
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_MAX_BASE: Final = 58
#: The version and variant bits of a random UUID (RFC 9562: version 4, variant 10), and the mask of the random bits.
_UUID_4: Final = 4 << 76 | 2 << 62
_UUID_KEPT: Final = ~(15 << 76 | 3 << 62)
_TERMINATING: Final = "create not allowed while custom resource definition is terminating"
_MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


class DeletionResult(NamedTuple):
    """The last version of a deleted object, and whether it is removed or only marked as deleted."""

    record: Record
    gone: bool


class ObjectLog(Protocol):
    """What keeps the objects of a store: every change is appended; ``failure`` says why it could not be kept, or is empty."""

    failure: str

    def append(self, kind: ServedKind, change: StoreChange) -> None: ...

    async def settle(self) -> None:
        """Wait until all changes so far are kept."""

    async def check(self) -> None:
        """Check that changes can be kept again after a failure."""

    async def keep_up(self) -> None:
        """Keep changes as they come, until cancelled."""

    def close(self) -> None: ...


def check_size(record: Record) -> None:
    """Check that an object is not too large.

    Raises  ApiError 500 with etcd's message
    """
    if len(record.body) > MAX_OBJECT:
        raise unknown("etcdserver: request is too large")


class Store(ObjectReader):
    """The objects of a cluster. ``clock`` returns seconds since 1970; ``draw`` generates uids and generated names.

    ``empties_namespaces``: the store itself deletes the content of deleted namespaces, at once and without grace periods.
    Controllers set it to False when they do that; new objects then also get the not-ready taints and protection finalizers
    that controllers remove. ``runtime_config``: the groups and versions, such as ``resource.k8s.io/v1beta1``, that are served
    in addition. ``server_version``: what ``/version`` reports; "" for the release of the gates. ``has_quotas``: whether
    resource quotas are enforced; they are not while files are loaded, as controllers recount afterwards.
    """

    def __init__(
        self, clock: Callable[[], float], draw: random.Random, signing_key: bytes, capacity: int = watch_cache.CAPACITY,
        gates: FeatureGates | None = None, runtime_config: frozenset[str] = frozenset(),
        pod_security: PodSecurity | None = None, server_version: str = "",
    ) -> None:  # fmt: skip
        self.gates = gates or FeatureGates()
        self.policies = AdmissionPolicies(self)
        self.pod_security = pod_security or PodSecurity(self.gates.emulated.minor)
        enabled = frozenset(filter(self.gates.serves, ALL_GATES)) | group_versions(self.gates)
        super().__init__(enabled | runtime_config, signing_key, capacity, server_version or self.gates.emulated.version)
        self.clock = clock
        self.empties_namespaces = True
        self.has_quotas = True
        #: Whether a pod needs the service account that it names, where a namespace has accounts.
        self.needs_accounts = True
        #: What objects may use only if a quota covers it.
        self.limited: tuple[LimitedResource, ...] = ()
        self._draw = draw
        #: The bytes of raw fields that clients sent.
        self.raw_fields = RawFields()
        self._followers: list[Callable[[ServedKind, StoreChange], None]] = [self.raw_fields.forget]
        self.log: ObjectLog | None = None
        self._definitions = Definitions(self)
        #: Defers follow-up work on large objects to a worker thread. If it is None, followers do that work at once.
        self.defer: Defer | None = None
        self._create_system_namespaces()

    def _create_system_namespaces(self) -> None:
        """Create the missing system namespaces."""
        for name in admission_plugins.SYSTEM_NAMESPACES:
            if self.find(_NAMESPACE, "", name) is None:
                self.create(_NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    @property
    def now(self) -> str:
        """The time in the format of object metadata."""
        return timestamp(self.clock())

    def follow(self, follower: Callable[[ServedKind, StoreChange], None]) -> None:
        """Call ``follower`` after every change, in order. It may change the store itself."""
        self._followers.append(follower)

    def unfollow(self, follower: Callable[[ServedKind, StoreChange], None]) -> None:
        """Stop calling a follower."""
        self._followers = [one for one in self._followers if one != follower]

    # -- persistence ---------------------------------------------------------------------------------------------------

    def restore(self, objects: Iterable[tuple[ServedKind, Record]], version: int) -> None:
        """Replace all objects by restored ones. The watch cache starts at ``version``; older watches and lists get 410."""
        self._kind_stores = {kind: KindStore(self._capacity, version) for kind in KINDS}
        self._object_counts.clear()
        self.version = version
        for kind, record in objects:
            self._kind_stores[kind].records[record.key] = record
            if kind is DEFINITIONS:  # definitions are restored first, as other objects need their kinds
                self._kind_stores[kind].keys = sorted(self._kind_stores[kind].records)
                self._definitions.load()
            if kind.namespaced:
                self._object_counts[record.namespace] += 1
        for kind_store in self._kind_stores.values():
            kind_store.keys = sorted(kind_store.records)

    def attach_log(self, log: ObjectLog) -> None:
        """Append every further change to a log, and every object that was not restored from it."""
        self.log = log
        self.follow(log.append)
        for kind, kind_store in [*self._kind_stores.items()]:
            for record in kind_store.records.values():
                if record.version > kind_store.history.floor:
                    log.append(kind, StoreChange(record.version, None, record))
        self._create_system_namespaces()

    async def settle(self) -> None:
        """Wait until all changes so far are on disk.

        Raises  ApiError 507 if they cannot be written
        """
        if self.log is not None:
            await self.log.settle()

    def close(self) -> None:
        """Write pending changes and close the log."""
        if self.log is not None:
            self.log.close()

    # -- writing -------------------------------------------------------------------------------------------------------

    def create(
        self, kind: ServedKind, namespace: str, document: Document, *,
        dry_run: bool = False, manager: FieldManager | None = None,
        confirm: Confirm | None = None, sent: ServedKind | None = None,
    ) -> Record:  # fmt: skip
        """Store a new object. ``manager`` becomes the manager of its fields. ``sent``: the kind in the version of the client.

        Raises  ApiError 409 if the name is taken, 404 without the namespace, 403 in a terminating one, 422; and what
                ``confirm`` raises
        """
        if (stored := _other_version(kind, document)) is not None:
            made = self.create(stored, namespace, document, dry_run=dry_run, manager=manager, confirm=confirm, sent=kind)
            return convert_record(kind, stored, made)
        metadata = document.setdefault("metadata", {})
        if is_version(metadata.get("resourceVersion")):
            raise unknown("resourceVersion should not be set on objects to be created")
        if kind.custom is not None and kind.custom.is_terminating:
            raise forbidden(kind.resource, kind.group, str(metadata.get("name") or ""), _TERMINATING)
        if kind.namespaced:
            admission_plugins.check_creatable(
                self.find(_NAMESPACE, "", namespace), namespace, kind, str(metadata.get("name") or "")
            )
            metadata["namespace"] = namespace
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink"):
            metadata.pop(name, None)
        self._name(kind, namespace, metadata)
        metadata["uid"] = self._new_uid()
        metadata["creationTimestamp"] = self.now
        set_release_defaults(kind, document, self.gates)
        found = set_first_defaults(kind, document, decodes=admission_plugins.reads(kind))
        self._track(kind, None, document, manager, sent, is_defaulted=True)
        if found is not None:
            found = admission_plugins.admit(kind, document, found, self._decode_all, self.gates)
        admitted = Admitted(kind, document, found)
        self._mutate(kind, document, dry_run=dry_run, sent=sent)
        if not self.empties_namespaces:
            admission_plugins.admit_with_controllers(kind, document)
        self._check_requested_addresses(kind, None, document)
        prepare_create(kind, document, self.gates, self._admin_access_faults(kind, None, document), admitted)
        admission_plugins.admit_new(kind, document, self._decode_all, self.gates)
        if kind is _SERVICES:
            self._allocate_service_addresses(None, document, dry_run=dry_run)
        self._check_security(kind, None, document)
        self.policies.check(kind, None, document, dry_run=dry_run, sent=sent)
        if confirm is not None:
            confirm(None, document)
        charges = self._charged_quotas(kind, namespace, None, document)
        held = self.find(kind, namespace, metadata["name"])
        if held is not None:
            is_deleted = "deletionTimestamp" in held.document()["metadata"]
            raise already_exists(
                kind.resource, kind.group, metadata["name"],
                is_generated=bool(metadata.get("generateName")), is_deleted=is_deleted,
            )  # fmt: skip
        if dry_run:
            return Record.of(kind, document, 0)
        return self._keep(kind, None, Record.of(kind, document, self._next_version()), charges)

    def _mutate(self, kind: ServedKind, document: Document, *, dry_run: bool, sent: ServedKind | None) -> None:
        """Complete a new object, in place: as policies say, with who asks for a certificate, and a pod with what its account
        and its node have for it.
        """
        if kind.native == "CertificateSigningRequest":
            sign_with_requester(document)
        if kind.native == "Pod":
            name = str(document["spec"].get("serviceAccountName") or "default")
            account = self.find(_ACCOUNTS, namespace := document["metadata"]["namespace"], name)
            is_mirror = "kubernetes.io/config.mirror" in (document["metadata"].get("annotations") or {})
            if (
                self.needs_accounts
                and account is None
                and not is_mirror
                and self.find(_ACCOUNTS, namespace, "default") is not None
            ):
                why = f"error looking up service account {namespace}/{name}: serviceaccount {quoted(name)} not found"
                raise admission_plugins.refused(kind, document, why)
            if account is not None:
                give_account(document, account.document())
        if self.policies.mutate(kind, None, document, dry_run=dry_run, sent=sent):
            set_defaults_and_decode(kind, document)
        if kind.native == "Pod" and (labels := self.topology_of(document["spec"].get("nodeName") or "")):
            document["metadata"]["labels"] = {**(document["metadata"].get("labels") or {}), **labels}

    def _check_security(self, kind: ServedKind, old: Document | None, new: Document, subresource: str = "") -> None:
        """Check an object against the pod security levels of its namespace; a controller or client gets the warnings.

        Raises  ApiError 403 for a pod, 422 for labels of a namespace
        """
        asks = requester()
        if kind.custom is not None or not asks.is_judged or not self.pod_security.concerns(kind, subresource):
            return
        if kind is _NAMESPACE:
            pods = (record.document() for record in self.all(_PODS, Selection(new["metadata"]["name"])))
            asks.warnings.extend(self.pod_security.admit_namespace(old, new, pods))
            return
        held = self.find(_NAMESPACE, "", new["metadata"].get("namespace") or "")
        labels = held.labels if held is not None else {}
        user = str(asks.user.get("username", ""))
        asks.warnings.extend(self.pod_security.admit(kind, labels, user, old, new, asks.annotations))

    def _admin_access_faults(self, kind: ServedKind, old: Document | None, new: Document) -> Iterator[Fault]:
        if kind.native not in {"ResourceClaim", "ResourceClaimTemplate"}:
            return iter(())
        namespace = self.find(_NAMESPACE, "", new["metadata"]["namespace"])
        return admin_access_faults(old, new, namespace.labels if namespace is not None else {})

    def _keep(self, kind: ServedKind, before: Record | None, after: Record, charges: Sequence[Document]) -> Record:
        """Store an admitted object, and charge it to quotas.

        Raises  ApiError 500 for an object that is too large, with etcd's message
        """
        check_size(after)
        if charges:
            self.store_charged_quotas(charges)
            after = after.as_of(self._next_version())
        return self._commit(kind, before, after)

    def _charged_quotas(
        self, kind: ServedKind, namespace: str, old: Document | None, new: Document, subresource: str = ""
    ) -> list[Document]:  # fmt: skip
        """Return the quotas that a change charges, with their new usage.

        Raises  ApiError 403 if a quota would be exceeded
        """
        if not namespace or not self.has_quotas or not (self.count(_QUOTAS) or self.limited):
            return []

        def every(kind: ServedKind, namespace: str) -> Iterator[Document]:
            return (record.document() for record in self.all(kind, Selection(namespace or None)))

        def find(kind: ServedKind, namespace: str, name: str) -> Document | None:
            held = self.find(kind, namespace, name)
            return None if held is None else held.document()

        quotas = [*every(_QUOTAS, namespace)]
        if not quotas and not self.limited:
            return []
        return charge_quotas(kind, old, new, subresource, quotas, Facts(self.clock(), every, find), self.limited)

    def store_charged_quotas(self, quotas: Iterable[Document]) -> None:
        """Store charged quotas. The caller stores the object itself directly afterwards."""
        for quota in quotas:
            namespace, name = quota["metadata"]["namespace"], quota["metadata"]["name"]
            self.update(_QUOTAS, namespace, name, quota, subresource="status", manager=_QUOTA_MANAGER)

    def _next_version(self) -> int:
        """Return the version of the next change."""
        return self.version + 1

    def _check_requested_addresses(
        self, kind: ServedKind, old: Document | None, document: Document, subresource: str = ""
    ) -> None:
        if kind is _SERVICES and not subresource and (faults := [*requested_address_faults(old, document)]):
            raise invalid("Service", "", document["metadata"].get("name") or "", faults)

    def _allocate_service_addresses(self, old: Document | None, new: Document, *, dry_run: bool) -> None:
        services, taken = partial(self.all, _SERVICES), partial(self.all, _ADDRESSES)
        if faults := [*allocate_addresses(old, new, services, taken, dry_run=dry_run)]:
            raise invalid("Service", "", new["metadata"]["name"], faults)

    def topology_of(self, node: str) -> dict[str, str]:
        """Return the zone and region labels of a node, which its pods get."""
        held = self.find(_NODE, "", node) if node else None
        return {} if held is None else {name: held.labels[name] for name in _TOPOLOGY if name in held.labels}

    def adopt(self, kind: ServedKind, document: Document) -> Record:
        """Store an object from another cluster with its uid, times and status, without admission.

        Raises  ApiError 409 if the name is taken, 404 without the namespace, 422
        """
        kind = _other_version(kind, document) or kind
        metadata = document["metadata"]
        namespace = metadata.get("namespace") or ""
        if kind.namespaced and self.find(_NAMESPACE, "", namespace) is None:
            raise not_found("namespaces", "", namespace)
        for name in ("managedFields", "resourceVersion", "selfLink"):
            metadata.pop(name, None)
        metadata["uid"] = metadata.get("uid") or self._new_uid()
        metadata["creationTimestamp"] = metadata.get("creationTimestamp") or self.now
        prepare_adopted(kind, document)
        if self.find(kind, namespace, metadata["name"]) is not None:
            raise already_exists(kind.resource, kind.group, metadata["name"])
        return self._commit(kind, None, Record.of(kind, document, self._next_version()))

    def _new_uid(self) -> str:
        bits = self._draw.getrandbits(128) & _UUID_KEPT | _UUID_4
        digits = f"{bits:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def _decode_all(self, struct: type[Any], namespace: str) -> Iterator[Any]:
        kind = _BY_STRUCT[struct]
        return (decode_document(kind, record.document()) for record in self.all(kind, Selection(namespace)))

    def _name(self, kind: ServedKind, namespace: str, metadata: Document) -> None:
        base = metadata.get("generateName")
        if kind.native == "LimitRange" and not metadata.get("name") and not base:
            metadata["name"] = self._new_uid()
        if metadata.get("name"):
            return
        if not base:
            raise invalid(
                kind.kind, kind.group, "", [Fault("Required value", "metadata.name", "name or generateName is required")]
            )
        for _ in range(8):
            metadata["name"] = str(base)[:_MAX_BASE] + "".join(self._draw.choice(_LETTERS) for _ in range(5))
            if self.find(kind, namespace, metadata["name"]) is None:
                return

    def update(
        self, kind: ServedKind, namespace: str, name: str, document: Document, *,
        subresource: str = "", dry_run: bool = False, manager: FieldManager | None = None, confirm: Confirm | None = None,
        sent_kind: ServedKind | None = None,
    ) -> Record:  # fmt: skip
        """Store a new version of an object. A document without a resource version, or with "0", replaces any version.

        ``sent_kind``: the kind in the version of the client.

        Raises  ApiError 404, 409 if the version or uid differs from the stored one, 422; and what ``confirm`` raises
        """
        if (stored := _other_version(kind, document)) is not None:
            made = self.update(
                stored, namespace, name, document, subresource=subresource, dry_run=dry_run, manager=manager, confirm=confirm,
                sent_kind=kind,
            )  # fmt: skip
            return convert_record(kind, stored, made)
        record = self.get(kind, namespace, name)
        sent = str(document.setdefault("metadata", {}).get("resourceVersion") or "")
        sent = "" if sent == "0" else sent
        old = record.document()
        if not sent and manager is not None and needs_version(kind):
            raise unversioned(kind, name)
        if sent and sent != str(record.version):
            check_sent_version(sent)
            raise conflict(kind.resource, kind.group, name, _MODIFIED)
        self._track(kind, old, document, manager, sent_kind)
        self._complete(kind, old, document, subresource)
        self.policies.mutate(kind, old, document, subresource, dry_run=dry_run, sent=sent_kind)
        more = self._admin_access_faults(kind, old, document) if subresource == "status" else ()
        self._check_requested_addresses(kind, old, document, subresource)
        prepare_update(kind, old, document, subresource, self.gates, self.now, more)
        if not subresource:
            admission_plugins.check_change(kind, old, document, self._decode_all, self.gates)
            if kind is _SERVICES:
                self._allocate_service_addresses(old, document, dry_run=dry_run)
        if subresource == "resize":
            self._check_resize(old, document)
        deletion.check_finalizers(kind, old, document)
        document["metadata"]["resourceVersion"] = str(record.version)
        self._check_security(kind, old, document, subresource)
        self.policies.check(kind, old, document, subresource, dry_run=dry_run, sent=sent_kind)
        if confirm is not None:
            confirm(old, document)
        charges = self._charged_quotas(kind, namespace, old, document, subresource)
        if equal_but_times(old, document):
            return record
        if deletion.is_removable(document):
            return record if dry_run else self._remove(kind, record, document).record
        if dry_run:
            return self.put(kind, record, document, dry_run=True)
        return self._keep(kind, record, Record.of(kind, document, self._next_version()), charges)

    def _complete(self, kind: ServedKind, old: Document, new: Document, subresource: str) -> None:
        """Restore fields that a client may leave out of a new version, in place."""
        if subresource == "resize":
            admission_plugins.admit_resize(new, set_defaults_and_decode(kind, new), self._decode_all)
        if not subresource:
            admission_plugins.restore_admitted(kind, old, new)
            if kind is _SERVICES:
                keep_addresses(old, new)
                drop_unused_fields(old, new)

    def _track(
        self, kind: ServedKind, old: Document | None, new: Document, manager: FieldManager | None, sent: ServedKind | None, *,
        is_defaulted: bool = False,
    ) -> None:  # fmt: skip
        """Track the fields that a client writes, as it sent them: before rules of the kind restore or complete any.

        ``sent``: the kind in the version of the client, whose fields are tracked
        """
        if manager is None:
            return
        if not is_defaulted:
            set_release_defaults(kind, new, self.gates)
            set_defaults_and_decode(kind, new, sent=True)
        # Kubernetes records changes of a scale without a time.
        when = self.now if manager.subresource != "scale" else ""
        ignored = fields_not_written(kind, manager.subresource)
        if sent is None or is_renamed(sent):
            track(kind_schema(kind), old, new, manager, when, ignored=ignored)
            return
        before, after = copy.deepcopy(old), copy.deepcopy(new)
        for one in (before, after):
            if one is not None:
                convert(sent, kind, one)
        track(kind_schema(sent), before, after, manager, when, ignored=ignored)
        set_or_drop(new["metadata"], "managedFields", after["metadata"].get("managedFields"))

    def _check_resize(self, old: Document, new: Document) -> None:
        pod, changed = decode_document(_PODS, new), old["metadata"].get("generation") != new["metadata"].get("generation")
        if isinstance(pod, Pod) and pod.spec.node_name and changed:
            held = self.find(_NODE, "", pod.spec.node_name)
            node = decode_document(_NODE, held.document()) if held is not None else None
            admission_plugins.check_resize(pod, node if isinstance(node, Node) else None)

    def put(self, kind: ServedKind, before: Record, document: Document, *, dry_run: bool = False) -> Record:
        """Store a new version of an object that the caller has validated."""
        record = Record.of(kind, document, before.version if dry_run else self._next_version())
        return record if dry_run else self._commit(kind, before, record)

    # -- deleting ------------------------------------------------------------------------------------------------------

    def delete(
        self, kind: ServedKind, namespace: str, name: str, options: DeleteOptions = NO_OPTIONS, *, dry_run: bool = False,
        sent: ServedKind | None = None,
    ) -> DeletionResult:  # fmt: skip
        """Remove an object, or mark it as deleted if finalizers, a pod's grace period or a namespace's content must be
        waited for.

        Raises  ApiError 404, 409 if a precondition does not hold, 403 for system namespaces
        """
        if (stored := _other_version(kind)) is not None:
            result = self.delete(stored, namespace, name, options, dry_run=dry_run, sent=kind)
            return DeletionResult(convert_record(kind, stored, result.record), result.gone)
        record = self.get(kind, namespace, name)
        document = record.document()
        metadata = document["metadata"]
        dry_run = dry_run or options.dry_run
        deletion.check_preconditions(kind, metadata, options)
        admission_plugins.check_deletable(kind, name)
        self.policies.check(kind, document, None, dry_run=dry_run, sent=sent)
        if kind is DEFINITIONS and not metadata.get("deletionTimestamp"):
            mark_for_cleanup(document, self.now)
        grace = deletion.grace_period_of(kind, document, options)
        deletion.set_propagation_finalizers(kind, metadata, options.propagation, is_default=options.is_default)
        pending = bool(
            grace or metadata.get("finalizers") or (kind is _NAMESPACE and admission_plugins.finalizers_of(document))
        )
        if not pending and kind is not _PODS:
            return DeletionResult(record, True) if dry_run else self._remove(kind, record, document)
        if dry_run and kind is _NAMESPACE:
            return DeletionResult(self._mark_deleted(kind, record, document, grace, dry_run=True), False)
        marked = self._mark_deleted(kind, record, document, grace, dry_run=dry_run)
        if not pending:
            # Watches of a pod that is removed at once see the mark first.
            return DeletionResult(marked, True) if dry_run else self._remove(kind, marked, marked.document())
        if kind is _NAMESPACE and self.empties_namespaces:
            with unjudged():
                self._delete_content(name)
                self._remove_if_empty(name)
            left = self.find(kind, "", name)
            return DeletionResult(marked, left is None)
        return DeletionResult(marked, False)

    def _mark_deleted(self, kind: ServedKind, record: Record, document: Document, grace: int, *, dry_run: bool) -> Record:
        metadata = document["metadata"]
        already = bool(metadata.get("deletionTimestamp"))
        if already and metadata.get("deletionGracePeriodSeconds", 0) == grace:
            return record if document == record.document() else self.put(kind, record, document, dry_run=dry_run)
        metadata["deletionTimestamp"] = timestamp(self.clock() + grace)
        metadata["deletionGracePeriodSeconds"] = grace
        if not already and metadata.get("generation"):
            metadata["generation"] = min(metadata["generation"] + 1, 2**63 - 1)
        if kind is DEFINITIONS or kind is _NAMESPACE:
            metadata.pop("deletionGracePeriodSeconds")
        if kind is DEFINITIONS:
            metadata["generation"] = record.document()["metadata"].get("generation", 1)
        if kind is _NAMESPACE:
            document["status"] = {**(document.get("status") or {}), "phase": "Terminating"}
        return self.put(kind, record, document, dry_run=dry_run)

    def _remove(self, kind: ServedKind, record: Record, document: Document) -> DeletionResult:
        return self._drop(kind, record, Record.of(kind, document, self._next_version()))

    def _drop(self, kind: ServedKind, record: Record, gone: Record) -> DeletionResult:
        if kind.stored_as is not None:
            held = self._stored_before(kind, record) or record
            result = self._drop(kind.stored_as, held, convert_record(kind.stored_as, kind, gone))
            return DeletionResult(convert_record(kind, kind.stored_as, result.record), result.gone)
        self.version = gone.version
        change = self._kind_store(kind).remove(record, gone)
        if kind.namespaced:
            self._object_counts[record.namespace] -= 1
        self._notify(kind, change)
        if kind is _SERVICES and self.find(_ENDPOINTS, record.namespace, record.name) is not None:
            with unjudged():
                self.delete(_ENDPOINTS, record.namespace, record.name)
        if kind.namespaced and self.empties_namespaces:
            self._remove_if_empty(record.namespace)
        return DeletionResult(gone, True)

    def _delete_content(self, namespace: str) -> None:
        """Delete all objects in a namespace, pods without a grace period."""
        selection = Selection(namespace)
        for kind in self.kinds.stored:
            if kind.namespaced:
                for record in [*self.all(kind, selection)]:
                    if self.find(kind, record.namespace, record.name) is not None:
                        self.delete(kind, record.namespace, record.name, DeleteOptions(grace_s=0))

    def _remove_if_empty(self, namespace: str) -> None:
        """Remove a terminating namespace that is empty."""
        record = self.find(_NAMESPACE, "", namespace)
        if record is not None and not self._object_counts[namespace] and record.fields["status.phase"] == "Terminating":
            self.update(_NAMESPACE, "", namespace, admission_plugins.finalized(record.document()), subresource="finalize")

    def _commit(self, kind: ServedKind, before: Record | None, after: Record) -> Record:
        if kind.stored_as is not None:
            made = convert_record(kind.stored_as, kind, after)
            return convert_record(kind, kind.stored_as, self._commit(kind.stored_as, self._stored_before(kind, before), made))
        self.version = after.version
        change = self._kind_store(kind).put(before, after)
        if before is None and kind.namespaced:
            self._object_counts[after.namespace] += 1
        self._notify(kind, change)
        return after

    def _stored_before(self, kind: ServedKind, before: Record | None) -> Record | None:
        """Return the stored record of an object that was looked up in any version."""
        return before if before is None or kind.stored_as is None else self._stored_record(kind.stored_as, before.key)

    def _notify(self, kind: ServedKind, change: StoreChange) -> None:
        self._kind_store(kind).history.add(change)
        if not self.policies.are_in_force:
            self._follow_up(kind, change)
            return
        with unjudged():
            self._follow_up(kind, change)

    def _follow_up(self, kind: ServedKind, change: StoreChange) -> None:
        for follower in self._followers:
            follower(kind, change)
        self._definitions.on_change(kind, change)

    def change(
        self, kind: ServedKind, namespace: str, name: str, edit: Callable[[Document], Document | None], *,
        subresource: str = "", dry_run: bool = False, manager: FieldManager | None = None, confirm: Confirm | None = None,
    ) -> Record:  # fmt: skip
        """Update an object with ``edit``, which modifies the document in place, or returns a new one."""
        document = self.get(kind, namespace, name).document()
        edited = edit(document)
        return self.update(
            kind, namespace, name, document if edited is None else edited, subresource=subresource, dry_run=dry_run,
            manager=manager, confirm=confirm,
        )  # fmt: skip


def _other_version(kind: ServedKind, document: Document | None = None) -> ServedKind | None:
    """Return the stored version of a built-in kind, and convert the document to it in place; None if this is the one."""
    if kind.custom is not None or kind.stored_as is None:
        return None
    if document is not None:
        document.setdefault("metadata", {})
        convert(kind.stored_as, kind, document)
    return kind.stored_as


_BY_STRUCT: Final = {kind.struct: kind for kind in KINDS if kind.struct is not None}
_ADDRESSES: Final = served("ipaddresses", "networking.k8s.io")
_ENDPOINTS: Final = served("endpoints")
_NAMESPACE: Final = served("namespaces")
_ACCOUNTS: Final = served("serviceaccounts")
_NODE: Final = served("nodes")
#: The node labels that pods get, as the admission plugin PodTopologyLabels does.
_TOPOLOGY: Final = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
_PODS: Final = served("pods")
_QUOTAS: Final = served("resourcequotas")
#: The field manager of a quota's status when an object is admitted.
_QUOTA_MANAGER: Final = FieldManager("kube-apiserver", version="v1", subresource="status")
_SERVICES: Final = served("services")
