"""A cluster's objects in memory: one counter of versions, optimistic concurrency, deletion in steps, as in Kubernetes.

The store is a plain object for one thread: every call is carried out at once and as a whole, and does no I/O. Time, chance and
the key that signs continue tokens are handed in. Documents that are handed in become the store's; what comes out are records,
whose bytes go to clients as they are.

Nothing is ever half done: a call that raises ``ApiError`` has changed nothing, and neither has a dry run.

Source  apiserver, pkg/registry/generic/registry/store.go, pkg/registry/rest and pkg/storage
"""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from moorage.api.meta import Value
from moorage.apiserver.admission.admission_plugins import (
    admit,
    admit_new,
    admit_with_controllers,
    check_change,
    restore_admitted,
)
from moorage.apiserver.admission.namespace_lifecycle import (
    SYSTEM_NAMESPACES,
    check_creatable,
    check_deletable,
    finalized,
    finalizers_of,
)
from moorage.apiserver.admission.service_addresses import allocate_addresses, drop_unused_fields, keep_addresses
from moorage.apiserver.admission.strategy import (
    decode_document,
    prepare_adopted,
    prepare_create,
    prepare_update,
    set_defaults_and_decode,
)
from moorage.apiserver.admission.update_validation import needs_version
from moorage.apiserver.fields.managed_fields import FieldManager, same_but_times, track, unwritten
from moorage.apiserver.schema.schemas import kind_schema
from moorage.apiserver.storage import continue_tokens, quota_charges, watch_cache
from moorage.apiserver.storage.deletion import (
    NO_OPTIONS,
    DeleteOptions,
    check_finalizers,
    check_preconditions,
    grace_of,
    is_done,
    settle_dependents,
)  # fmt: skip
from moorage.apiserver.storage.kind_stores import KindStore, between, matching
from moorage.apiserver.storage.list_selection import ALL, Selection
from moorage.apiserver.storage.watch_cache import Change
from moorage.apiserver.storage.watches import Watch
from moorage.apiserver.vocabulary.records import Confirm, Document, Record, key_of
from moorage.apiserver.vocabulary.resource_versions import check_sent_version, parse_version, parse_version_of_one
from moorage.apiserver.vocabulary.served_kinds import ALL_GATES, KINDS, ServedKind, served
from moorage.apiserver.vocabulary.statuses import (
    already_exists,
    bad_request,
    conflict,
    expired,
    invalid,
    not_found,
    timeout,
    unknown,
)
from moorage.errors import Fault
from moorage.framework.features import FeatureGates

__all__ = ["DeleteOptions", "Deleted", "Keeper", "ListPage", "Store", "timestamp"]

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_MAX_BASE: Final = 58
#: What of 128 bits is free in a UUID that was drawn, and what says that it is one (RFC 9562: version 4, variant 10).
_UUID_4: Final = 4 << 76 | 2 << 62
_UUID_KEPT: Final = ~(15 << 76 | 3 << 62)
_MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


class ListPage(NamedTuple):
    """Part of a list. ``remaining`` is None where nobody counted what is left."""

    records: list[Record]
    version: int
    token: str = ""
    remaining: int | None = None


class Deleted(NamedTuple):
    """The object as it was last, and whether it is gone or only on its way."""

    record: Record
    gone: bool


class Keeper(Protocol):
    """What keeps changes beyond the process; see ``moorage.apiserver.storage.sqlite_log``."""

    #: Why changes cannot be kept at the moment, if so.
    failure: str

    def append(self, kind: ServedKind, change: Change) -> None: ...
    async def settle(self) -> None: ...
    async def check(self) -> None: ...
    async def keep_up(self) -> None: ...
    def close(self) -> None: ...


def timestamp(epoch_s: float) -> str:
    """Return a time as objects carry it: whole seconds, UTC."""
    return _second(int(epoch_s))


@lru_cache(maxsize=64)
def _second(epoch: int) -> str:
    return datetime.datetime.fromtimestamp(epoch, tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """A cluster's objects. ``clock`` tells seconds since 1970; ``draw`` makes uids and generated names.

    ``empties_namespaces`` says whether the store deletes the content of a namespace that is deleted: at once, pods without any
    grace. It does unless a controller that looks after namespaces has said that it does so itself. Where it does not, there are
    controllers, and new objects wait for them: nodes are not ready at first, claims and volumes are kept from being deleted.
    ``lists_by_watch`` says whether a list may be asked for as the beginning of a watch; a kube-apiserver over etcd before
    3.5.11 cannot tell one so. ``has_quotas`` says whether resource quotas are heeded; they are not while
    files are read in, as controllers count afterwards what is there. ``offers`` are those of the open gates that open kinds;
    what is stored of others stays, and is not served.
    """

    def __init__(
        self, clock: Callable[[], float], draw: random.Random, signing_key: bytes, capacity: int = watch_cache.CAPACITY,
        gates: FeatureGates | None = None,
    ) -> None:  # fmt: skip
        self.version = 1
        self.clock = clock
        self.gates = gates or FeatureGates()
        self.offers = frozenset(gate for gate in ALL_GATES if self.gates[gate])
        self.empties_namespaces = True
        self.lists_by_watch = True
        self.has_quotas = True
        self._draw = draw
        self._signing_key = signing_key
        self._capacity = capacity
        self._shelves = {kind: KindStore(capacity) for kind in KINDS}
        self._inhabitants: Counter[str] = Counter()
        self._followers: list[Callable[[ServedKind, Change], None]] = []
        self.keeper: Keeper | None = None
        self._found()

    def _found(self) -> None:
        """Make the namespaces that every cluster has, where they are not there."""
        for name in SYSTEM_NAMESPACES:
            if self.find(_NAMESPACE, "", name) is None:
                self.create(_NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def follow(self, follower: Callable[[ServedKind, Change], None]) -> None:
        """Call this after every change, in order. It may change the store in turn."""
        self._followers.append(follower)

    # -- keeping ----------------------------------------------------------------------------------------------------

    def restore(self, objects: Iterable[tuple[ServedKind, Record]], version: int) -> None:
        """Replace everything by objects from elsewhere. History begins at ``version``; older watches and lists get 410."""
        self._shelves = {kind: KindStore(self._capacity, version) for kind in KINDS}
        self._inhabitants.clear()
        for kind, record in objects:
            self._shelves[kind].records[record.key] = record
            if kind.namespaced:
                self._inhabitants[record.namespace] += 1
        for shelf in self._shelves.values():
            shelf.keys = sorted(shelf.records)
        self.version = version

    def keep_in(self, keeper: Keeper) -> None:
        """Hand every further change to a keeper, and what is there now if this store was not restored from it."""
        self.keeper = keeper
        self.follow(keeper.append)
        for kind, shelf in self._shelves.items():
            for record in shelf.records.values():
                if record.version > shelf.history.floor:
                    keeper.append(kind, Change(record.version, None, record))
        self._found()

    async def settle(self) -> None:
        """Wait until all changes so far are kept.

        Raises  ApiError 507 where they cannot be
        """
        if self.keeper is not None:
            await self.keeper.settle()

    def close(self) -> None:
        """Keep what is pending, and let go of the file."""
        if self.keeper is not None:
            self.keeper.close()

    # -- reading ----------------------------------------------------------------------------------------------------

    def find(self, kind: ServedKind, namespace: str, name: str) -> Record | None:
        return self._shelves[kind].records.get(key_of(namespace, name))

    def get(self, kind: ServedKind, namespace: str, name: str) -> Record:
        """Return an object.

        Raises  ApiError 404
        """
        record = self.find(kind, namespace, name)
        if record is None:
            raise not_found(kind.resource, kind.group, name)
        return record

    def all(self, kind: ServedKind, chosen: Selection = ALL) -> Iterator[Record]:
        """Yield the objects of a kind in the order of their keys."""
        return matching(self._shelves[kind].records, self._shelves[kind].keys, chosen)

    def count(self, kind: ServedKind) -> int:
        return len(self._shelves[kind].records)

    def page(
        self, kind: ServedKind, chosen: Selection = ALL, *, limit: int = 0, token: str = "", version: str = "", match: str = ""
    ) -> ListPage:
        """Return objects as they are now, or all pages of a list as they were at its first.

        ``version`` with ``match`` "Exact" asks for the state at that version, otherwise for one that is no older.

        Raises  ApiError 400 for arguments that make no sense, 410 for what is forgotten, 504 for what is yet to come
        """
        shelf = self._shelves[kind]
        if limit < 0 or (version == "0" and match != "Exact" and not token):
            limit = 0  # whoever takes any version gets it whole
        if token:
            if version not in {"", "0"}:
                raise bad_request("specifying resource version is not allowed when using continue")
            place = continue_tokens.read_token(self._signing_key, kind, chosen.namespace, token)
        else:
            place = continue_tokens.ListPosition(
                self._version_wanted(version, match or ("Exact" if limit and version != "0" else "")), ""
            )
        if place.version == self.version:
            records, keys = shelf.records, shelf.keys
        else:
            state = shelf.history.state_at(place.version, shelf.records)
            if state is None:
                raise continue_tokens.too_old() if token else expired("The resourceVersion for the provided list is too old.")
            records, keys = state, sorted(state)
        return self._cut(kind, chosen, limit, place, records, keys)

    def _cut(
        self,
        kind: ServedKind,
        chosen: Selection,
        limit: int,
        place: continue_tokens.ListPosition,
        records: Mapping[str, Record],
        keys: list[str],
    ) -> ListPage:
        found: list[Record] = []
        for record in matching(records, keys, chosen, place.after):
            found.append(record)
            if len(found) == limit:
                break
        after = found[-1].key if found else ""
        if not limit or len(found) < limit or not continue_tokens.is_more(keys, chosen.namespace, after):
            return ListPage(found, place.version)
        token = continue_tokens.write_token(
            self._signing_key, kind, chosen.namespace, continue_tokens.ListPosition(place.version, after)
        )
        remaining = len(between(keys, chosen.namespace, after)) if chosen.is_everything else None
        return ListPage(found, place.version, token, remaining)

    def _version_wanted(self, version: str, match: str) -> int:
        wanted = parse_version(version)
        if wanted > self.version:
            raise timeout(wanted, self.version)
        return wanted if match == "Exact" and wanted else self.version

    def watch(
        self, kind: ServedKind, chosen: Selection, version: str, wake: Callable[[], None], *, initial: bool | None = None
    ) -> Watch:
        """Start a watch after a version, or from now on. ``initial`` has it begin with an ADDED for every object there is; that
        is what it does anyway with no version, or "0", where it is None.

        A watch after a version that is yet to come waits for it.

        Raises  ApiError 500 for a version that is none, 410 for one that is forgotten, 504 for one that is yet to come if it is
                to begin with what there is
        """
        wanted = parse_version_of_one(version)
        if wanted > self.version and initial:
            raise timeout(wanted, self.version)
        shelf = self._shelves[kind]
        lists = initial or (initial is None and not wanted)
        if wanted and not lists:
            shelf.history.check(wanted)
        watch = Watch(shelf, chosen, wake, wanted if wanted and not lists else self.version, lists=lists)
        shelf.history.followers.append(watch)
        return watch

    def unwatch(self, kind: ServedKind, watch: Watch) -> None:
        watch.closed = True
        followers = self._shelves[kind].history.followers
        if watch in followers:
            followers.remove(watch)

    # -- writing ----------------------------------------------------------------------------------------------------

    def create(
        self, kind: ServedKind, namespace: str, document: Document, *,
        dry_run: bool = False, manager: FieldManager | None = None,
        confirm: Confirm | None = None,
    ) -> Record:  # fmt: skip
        """Store a new object. Where it is known who makes it, that is who manages its fields.

        Raises  ApiError 409 where the name is taken, 404 without the namespace, 403 in one that is on its way out, 422;
                and what ``confirm`` raises
        """
        metadata = document.setdefault("metadata", {})
        if metadata.get("resourceVersion"):
            raise unknown("resourceVersion should not be set on objects to be created")
        if kind.namespaced:
            check_creatable(self.find(_NAMESPACE, "", namespace), namespace, kind, str(metadata.get("name") or ""))
            metadata["namespace"] = namespace
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"):
            metadata.pop(name, None)
        self._name(kind, namespace, metadata)
        metadata["uid"] = self._new_uid()
        metadata["creationTimestamp"] = timestamp(self.clock())
        found = set_defaults_and_decode(kind, document)
        if manager is not None:
            track(kind_schema(kind), None, document, manager, timestamp(self.clock()), ignored=unwritten(kind, ""))
        admit(kind, document, found, self._read_all, self.gates)
        if kind.kind == "Pod" and (labels := self.topology_of(document["spec"].get("nodeName") or "")):
            metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
        if not self.empties_namespaces:
            admit_with_controllers(kind, document)
        prepare_create(kind, document, self.gates)
        admit_new(kind, document, self._read_all)
        if kind is _SERVICES:
            self._settle_service(None, document)
        if confirm is not None:
            confirm(None, document)
        charges = quota_charges.charges(self, kind, namespace, None, document)
        if self.find(kind, namespace, metadata["name"]) is not None:
            raise already_exists(kind.resource, kind.group, metadata["name"])
        if dry_run:
            return Record.of(kind, document, 0)
        quota_charges.charge(self, charges)
        return self._commit(kind, None, Record.of(kind, document, self.version + 1))

    def _settle_service(self, old: Document | None, new: Document) -> None:
        if faults := [*allocate_addresses(old, new, lambda: self.all(_SERVICES))]:
            raise invalid("Service", "", new["metadata"]["name"], faults)

    def topology_of(self, node: str) -> dict[str, str]:
        """Return the labels that pods of a node are given: its zone and its region, as far as it has them."""
        held = self.find(_NODE, "", node) if node else None
        return {} if held is None else {name: held.labels[name] for name in _TOPOLOGY if name in held.labels}

    def adopt(self, kind: ServedKind, document: Document) -> Record:
        """Store an object as another cluster had it: its uid, its times and its status stay, and nothing is admitted.

        Raises  ApiError 409 where the name is taken, 404 without the namespace, 422
        """
        metadata = document["metadata"]
        namespace = metadata.get("namespace") or ""
        if kind.namespaced and self.find(_NAMESPACE, "", namespace) is None:
            raise not_found("namespaces", "", namespace)
        for name in ("managedFields", "resourceVersion", "selfLink"):
            metadata.pop(name, None)
        metadata["uid"] = metadata.get("uid") or self._new_uid()
        metadata["creationTimestamp"] = metadata.get("creationTimestamp") or timestamp(self.clock())
        prepare_adopted(kind, document)
        if self.find(kind, namespace, metadata["name"]) is not None:
            raise already_exists(kind.resource, kind.group, metadata["name"])
        return self._commit(kind, None, Record.of(kind, document, self.version + 1))

    def _new_uid(self) -> str:
        bits = self._draw.getrandbits(128) & _UUID_KEPT | _UUID_4
        digits = f"{bits:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def _read_all(self, struct: type[Value], namespace: str) -> Iterator[Value]:
        kind = _BY_STRUCT[struct]
        return (decode_document(kind, record.document()) for record in self.all(kind, Selection(namespace)))

    def _name(self, kind: ServedKind, namespace: str, metadata: Document) -> None:
        base = metadata.get("generateName")
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
    ) -> Record:  # fmt: skip
        """Store the next version of an object. A document without a version, or of version 0, replaces whatever is there.

        Raises  ApiError 404, 409 for a version or a uid that is not the stored one, 422; and what ``confirm`` raises
        """
        record = self.get(kind, namespace, name)
        sent = str(document.setdefault("metadata", {}).get("resourceVersion") or "")
        sent = "" if sent == "0" else sent
        old = record.document()
        if not sent and manager is not None and needs_version(kind):
            fault = Fault("Invalid value", "metadata.resourceVersion", "must be specified for an update", 0)
            raise invalid(kind.resource, kind.group, name, [fault])
        if sent and sent != str(record.version):
            check_sent_version(sent)
            raise conflict(kind.resource, kind.group, name, _MODIFIED)
        if not subresource:
            restore_admitted(kind, old, document)
            if kind is _SERVICES:
                keep_addresses(old, document)
                drop_unused_fields(old, document)
        prepare_update(kind, old, document, subresource, self.gates, timestamp(self.clock()))
        if not subresource:
            check_change(kind, old, document, self._read_all, self.gates)
            if kind is _SERVICES:
                self._settle_service(old, document)
        check_finalizers(kind, old, document)
        if manager is not None:
            # Who changes a scale is noted without a time, as in Kubernetes.
            when = timestamp(self.clock()) if manager.subresource != "scale" else ""
            track(kind_schema(kind), old, document, manager, when)
        document["metadata"]["resourceVersion"] = str(record.version)
        if confirm is not None:
            confirm(old, document)
        charges = quota_charges.charges(self, kind, namespace, old, document, subresource)
        if same_but_times(old, document):
            return record
        if is_done(document):
            return record if dry_run else self._remove(kind, record, document).record
        if not dry_run:
            quota_charges.charge(self, charges)
        return self.put(kind, record, document, dry_run=dry_run)

    def put(self, kind: ServedKind, before: Record, document: Document, *, dry_run: bool = False) -> Record:
        """Store the next version of an object as it is, by rules of the caller's own."""
        record = Record.of(kind, document, before.version if dry_run else self.version + 1)
        return record if dry_run else self._commit(kind, before, record)

    # -- deleting ---------------------------------------------------------------------------------------------------

    def delete(
        self, kind: ServedKind, namespace: str, name: str, options: DeleteOptions = NO_OPTIONS, *, dry_run: bool = False
    ) -> Deleted:
        """Remove an object, or mark it for those who have to agree first: finalizers, a pod's node, a namespace's content.

        Raises  ApiError 404, 409 where a precondition does not hold, 403 for the namespaces every cluster has
        """
        record = self.get(kind, namespace, name)
        document = record.document()
        metadata = document["metadata"]
        dry_run = dry_run or options.dry_run
        check_preconditions(kind, metadata, options)
        check_deletable(kind, name)
        grace = grace_of(kind, document, options)
        settle_dependents(metadata, options.propagation, is_usual=options.is_usual)
        pending = bool(grace or metadata.get("finalizers") or (kind is _NAMESPACE and finalizers_of(document)))
        if not pending and kind is not _PODS:
            return Deleted(record, True) if dry_run else self._remove(kind, record, document)
        if dry_run and kind is _NAMESPACE:
            return Deleted(record, False)
        marked = self._mark(kind, record, document, grace, dry_run=dry_run)
        if not pending:
            # A pod that goes at once is told to go first, too.
            return Deleted(marked, True) if dry_run else self._remove(kind, marked, marked.document())
        if kind is _NAMESPACE and self.empties_namespaces:
            self._empty(name)
            self._close(name)
            left = self.find(kind, "", name)
            return Deleted(marked, left is None)
        return Deleted(marked, False)

    def _mark(self, kind: ServedKind, record: Record, document: Document, grace: int, *, dry_run: bool) -> Record:
        metadata = document["metadata"]
        already = bool(metadata.get("deletionTimestamp"))
        if already and metadata.get("deletionGracePeriodSeconds", 0) == grace:
            return record if document == record.document() else self.put(kind, record, document, dry_run=dry_run)
        metadata["deletionTimestamp"] = timestamp(self.clock() + grace)
        metadata["deletionGracePeriodSeconds"] = grace
        if not already and metadata.get("generation"):
            metadata["generation"] += 1
        if kind is _NAMESPACE:
            metadata.pop("deletionGracePeriodSeconds")
            document["status"] = {**(document.get("status") or {}), "phase": "Terminating"}
        return self.put(kind, record, document, dry_run=dry_run)

    def _remove(self, kind: ServedKind, record: Record, document: Document) -> Deleted:
        gone = Record.of(kind, document, self.version + 1)
        self.version += 1
        change = self._shelves[kind].remove(record, gone)
        if kind.namespaced:
            self._inhabitants[record.namespace] -= 1
        self._tell(kind, change)
        if kind.namespaced and self.empties_namespaces:
            self._close(record.namespace)
        return Deleted(gone, True)

    def _empty(self, namespace: str) -> None:
        """Delete what is in a namespace. Pods get no grace: their namespace is going."""
        chosen = Selection(namespace)
        for kind in KINDS:
            if kind.namespaced:
                for record in [*self.all(kind, chosen)]:
                    if self.find(kind, record.namespace, record.name) is not None:
                        self.delete(kind, record.namespace, record.name, DeleteOptions(grace_s=0))

    def _close(self, namespace: str) -> None:
        """Let a namespace go that only waited for its last inhabitant."""
        home = self.find(_NAMESPACE, "", namespace)
        if home is not None and not self._inhabitants[namespace] and home.fields["status.phase"] == "Terminating":
            self.update(_NAMESPACE, "", namespace, finalized(home.document()), subresource="finalize")

    def _commit(self, kind: ServedKind, before: Record | None, after: Record) -> Record:
        self.version = after.version
        change = self._shelves[kind].put(before, after)
        if before is None and kind.namespaced:
            self._inhabitants[after.namespace] += 1
        self._tell(kind, change)
        return after

    def _tell(self, kind: ServedKind, change: Change) -> None:
        self._shelves[kind].history.add(change)
        for follower in self._followers:
            follower(kind, change)

    def change(
        self, kind: ServedKind, namespace: str, name: str, edit: Callable[[Document], Document | None], *,
        subresource: str = "", dry_run: bool = False, manager: FieldManager | None = None,
    ) -> Record:  # fmt: skip
        """Store what ``edit`` makes of an object: its argument changed in place, or another document."""
        document = self.get(kind, namespace, name).document()
        edited = edit(document)
        return self.update(
            kind, namespace, name, document if edited is None else edited, subresource=subresource, dry_run=dry_run,
            manager=manager,
        )  # fmt: skip


_BY_STRUCT: Final = {kind.struct: kind for kind in KINDS if kind.struct is not None}
_NAMESPACE: Final = served("namespaces")
_NODE: Final = served("nodes")
#: What pods are told of where they are, as the admission plugin PodTopologyLabels does.
_TOPOLOGY: Final = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
_PODS: Final = served("pods")
_SERVICES: Final = served("services")
