"""Load the objects of files into a store: dumps with their UIDs and status, manifests as if they were applied now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final, TypeAlias

import msgspec

from moorage.api.core import ENDED_PHASES
from moorage.api.decode import decode
from moorage.api.documents.object_fields import NODES, PODS, REPLICA_SETS, bounds, phase_of, spec_of
from moorage.api.documents.served_kinds import Document, ServedKind, find_kind, served
from moorage.api.documents.statuses import ApiError
from moorage.api.reading.manifests import OnRepeat
from moorage.api.schema.normalization import FieldTypeError
from moorage.api.schema.versions import convert
from moorage.api.workloads import Deployment
from moorage.basis.inputs.files import open_sources
from moorage.basis.inputs.objects import SERVER_VERSION, FoundObject, find_objects, is_printed
from moorage.basis.printable import counted, some
from moorage.cluster.apiserver.schema.request_bodies import fit, form_of_kind
from moorage.errors import InputError
from moorage.interfaces.cli.terminal import Progress
from moorage.rules.store.conversion_webhooks import convert_by_webhook
from moorage.rules.store.store import Store
from moorage.rules.workloads.made_from import is_made_from
from moorage.rules.workloads.missing_pods import POD_TEMPLATE_HASH
from moorage.rules.workloads.pod_collection import QUARANTINE_S
from moorage.rules.workloads.replica_set import new_replica_set, revision_of

# -- missing owners ----------------------------------------------------------------------------------------------------
# Recreate replica sets that a dump leaves out, from the deployments and pods that refer to them.
#
# Without its replica set a deployment would create all its pods again, in addition to the existing ones. The documents are not
# validated yet: malformed ones are skipped here and rejected when they are stored.

#: Namespace and name.
_Place = tuple[str, str]


def missing_replica_sets(documents: Sequence[Document]) -> Iterator[Document]:
    """Yield the replica set of each deployment that has none, with the name and UID in its pods' owner references.

    Where the pods name several replica sets, yield the one whose pods match the template best; the others are unknown.
    """
    there = {_place(one) for one in documents if one["kind"] == "ReplicaSet"}
    pods = _pods_by_replica_set(documents)
    for deployment in documents:
        if deployment["kind"] != "Deployment" or not deployment["metadata"].get("uid") or not _is_valid(deployment):
            continue
        space, name = _place(deployment)
        own = {place: held for place, held in pods.items() if place == (space, f"{name}-{_mark(held[0])}")}
        if own and not there.intersection(own):
            yield _replica_set(deployment, own)


def _pods_by_replica_set(documents: Sequence[Document]) -> dict[_Place, list[Document]]:
    pods: dict[_Place, list[Document]] = {}
    for pod in documents:
        owner = _controller(pod) if pod["kind"] == "Pod" else {}
        ended = _part(pod, "status").get("phase") in ENDED_PHASES or pod["metadata"].get("deletionTimestamp")
        if owner.get("kind") == "ReplicaSet" and not ended:
            pods.setdefault((_place(pod)[0], str(owner.get("name"))), []).append(pod)
    return pods


def _replica_set(deployment: Document, own: dict[_Place, list[Document]]) -> Document:
    """Return a deployment's current replica set, chosen among those that its pods name."""
    spec = {name: value for name, value in spec_of(deployment).items() if value is not None}
    template = spec.get("template") or {}
    fitting = {place: sum(is_made_from(pod, template) for pod in held) for place, held in own.items()}
    held = own[max(sorted(own), key=lambda place: (fitting[place], len(own[place])))]
    wanted = int(spec.get("replicas", 1))
    rolls = _part(spec, "strategy").get("type") != "Recreate"
    surge = bounds(_part(spec, "strategy", "rollingUpdate"), wanted).surge if rolls else 0
    revision = revision_of(deployment) or 1
    made = new_replica_set({**deployment, "spec": spec}, _mark(held[0]), revision, len(held), wanted + surge)
    made["metadata"]["uid"] = _controller(held[0]).get("uid")
    return made


def _is_valid(deployment: Document) -> bool:
    try:
        decode(deployment, Deployment, "")
    except InputError:
        return False
    return True


def _part(document: Any, *path: str) -> dict[str, Any]:
    """Return a nested object of a document; an empty one where the path does not lead to an object."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def _controller(document: Document) -> dict[str, Any]:
    owners = document["metadata"].get("ownerReferences")
    listed = owners if isinstance(owners, list) else []
    return next((one for one in listed if isinstance(one, dict) and one.get("controller") is True), {})


def _place(document: Document) -> _Place:
    metadata = document["metadata"]
    return str(metadata.get("namespace") or "default"), str(metadata.get("name"))


def _mark(pod: Document) -> str:
    return str(_part(pod, "metadata", "labels").get(POD_TEMPLATE_HASH, ""))


_ACCOUNTS: Final = served("serviceaccounts")
#: Where pods, and objects that make pods, have the spec of a pod.
_POD_SPECS: Final = (("spec",), ("spec", "template", "spec"), ("spec", "jobTemplate", "spec", "template", "spec"))
_DEFINITIONS: Final = served("customresourcedefinitions", "apiextensions.k8s.io")
#: Kinds that are stored first, because creating or admitting other objects requires them. The other kinds follow in any order.
_FIRST: Final = ("Namespace", "PriorityClass", "RuntimeClass", "StorageClass", "LimitRange", "ServiceAccount")
#: Short-lived kinds, and records of ``moorage dump`` and ``kubectl version`` about the cluster; both are skipped.
_PASSING: Final = frozenset(["Event", "Lease"])
_NOT_STORED: Final = frozenset(["DumpRecord", SERVER_VERSION])
#: Progress is updated after this many objects.
_OFTEN: Final = 100
#: An object, its kind and its position.
_Wanted: TypeAlias = tuple[ServedKind, Document, str]
#: The maximum number of faults that are reported.
_MOST: Final = 20


def fill(
    store: Store, paths: Iterable[str], *, recursive: bool = False, stdin: BinaryIO | None = None,
    progress: Progress | None = None,
) -> list[str]:  # fmt: skip
    """Store the objects of files, and return remarks on skipped and recreated objects.

    Objects of dumps that the API server would refuse are left out, with a remark each.
    Raises  InputError for unreadable files and other invalid objects, with one located line for each fault
    """
    left: Counter[str] = Counter()
    repeats: list[str] = []
    others: list[str] = []
    faults = _Faults()
    read = list(
        _read(
            paths, recursive=recursive, stdin=stdin, progress=progress, on_repeat=repeats.append, on_other=others.append,
            faults=faults,
        )
    )  # fmt: skip
    for one in read:
        if _is_definition(one[0]):
            faults.add(one[1], _keep(store, _DEFINITIONS, *one, left))
    wanted = list(_known(store, (one for one in read if not _is_definition(one[0])), left, faults))
    sets = list(missing_replica_sets([document for _, document, _ in wanted]))
    wanted += [(REPLICA_SETS, made, "made for pods") for made in sets]
    accounts = _missing_accounts([document for _, document, _ in wanted])
    wanted += [(_ACCOUNTS, made, "made for pods") for made in accounts]
    wanted.sort(key=lambda one: _FIRST.index(one[0].native) if one[0].native in _FIRST else len(_FIRST))
    strays = _drop_missing_owners(store, [document for _, document, _ in wanted])
    store.has_quotas = False
    try:
        for kind, document, where in _shown(wanted, progress):
            faults.add(where, _keep(store, kind, document, where, left))
    finally:
        store.has_quotas = True
    if faults.errors:
        raise InputError(*_first(faults.errors))
    remarks = [f"{count} {what}" for what, count in sorted(left.items())]
    remarks += [f"left out, as it cannot be read: {fault}" for fault in _first(faults.left_out)]
    if others:
        files = list(dict.fromkeys(others))
        remarks.append(f"{counted(len(files), 'file')} with documents that are no Kubernetes objects: {some(files)}")
    if repeats:
        remarks.append(f"{counted(len(repeats), 'key')} given more than once in a map, the last value counts: {some(repeats)}")
    if sets:
        remarks.append(f"{counted(len(sets), 'replica set')} not in the input: recreated from deployments and pods")
    if accounts:
        remarks.append(f"{counted(len(accounts), 'service account')} not in the input: made, as pods name them")
    if strays:
        remarks.append(f"{counted(strays, 'object')} with owners that are not in the input: kept without owner references")
    return remarks


class _Faults:
    """Faults of objects: those of dumps are left out, the others are errors. ``dumped`` are the positions of the former."""

    def __init__(self) -> None:
        self.dumped: set[str] = set()
        self.errors: list[str] = []
        self.left_out: list[str] = []

    def add(self, where: str, fault: str) -> None:
        """Note the fault of an object; "" if it has none."""
        if fault:
            (self.left_out if where in self.dumped else self.errors).append(fault)


def _first(faults: Sequence[str]) -> list[str]:
    return [*faults[:_MOST], *([f"and {len(faults) - _MOST} more"] if len(faults) > _MOST else [])]


def _shown(wanted: Sequence[_Wanted], progress: Progress | None) -> Iterator[_Wanted]:
    """Yield the objects, and show the progress."""
    for number, one in enumerate(wanted):
        if progress is not None and number % _OFTEN == 0:
            progress.part("storing objects", number, len(wanted))
        yield one


def _read(
    paths: Iterable[str],
    *,
    recursive: bool,
    stdin: BinaryIO | None,
    progress: Progress | None,
    on_repeat: OnRepeat,
    on_other: Callable[[str], None],
    faults: _Faults,
) -> Iterator[tuple[Document, str]]:
    """Yield the objects of files, each with its position."""
    count = 0
    for source in open_sources(paths, recursive=recursive, stdin=stdin):
        if progress is not None:
            progress.reading(source, count)
        for found in find_objects(source, on_repeat, on_other, lambda error: faults.left_out.append(str(error))):
            if found.kind in _NOT_STORED:
                continue
            count += 1
            document = _plain(found)
            metadata = document["metadata"]
            if found.is_dumped or is_printed(document):
                faults.dumped.add(found.where)
            if isinstance(metadata, dict):
                yield document, found.where
            else:
                faults.add(found.where, f"{found.where}: {found.kind}: metadata: expected an object")


def _is_definition(document: Document) -> bool:
    return (document["apiVersion"], document["kind"]) == (_DEFINITIONS.api_version, _DEFINITIONS.kind)


def _known(store: Store, read: Iterable[tuple[Document, str]], left: Counter[str], faults: _Faults) -> Iterator[_Wanted]:
    """Yield the objects of kinds that the store serves in the storage version, and count the others in ``left``.

    ``faults`` receives one for each object that its definition's webhook does not convert.
    """
    for document, where in read:
        kind = store.kinds.find_type(document["apiVersion"], document["kind"])
        if kind is None or kind.native in _PASSING:
            left[f"{document['kind']} {document['apiVersion']} left out"] += 1
            continue
        webhook = None if kind.custom is None else kind.custom.webhook
        if kind.stored_as is not None and webhook is not None:
            try:
                converted = convert_by_webhook(webhook, kind.storage, kind, document)
            except ApiError as error:
                faults.add(where, f"{where}: {kind.kind} {document['metadata'].get('name', '')}: {error}")
            else:
                yield kind.storage, converted, where
            continue
        if kind.stored_as is not None:
            convert(kind.storage, kind, document)
        yield kind.storage, document, where


def lost_pods(store: Store) -> Iterator[str]:
    """Yield a remark on pods that have not ended and are bound to missing nodes."""
    there = {record.name for record in store.all(NODES)}
    pods = [record.document() for record in store.all(PODS)]
    lost = [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName") and phase_of(pod) not in ENDED_PHASES]
    lost = [name for name in lost if name not in there]
    if lost:
        nodes = sorted(set(lost))
        yield (
            f"{counted(len(lost), 'pod')} on {counted(len(nodes), 'node')} that {'does' if len(nodes) == 1 else 'do'} not exist"
            f" ({some(nodes)}): pod garbage collection deletes {'it' if len(lost) == 1 else 'them'} in {QUARANTINE_S:.0f}s"
        )


def _drop_missing_owners(store: Store, documents: Iterable[Document]) -> int:
    """Remove references to owners that are neither in the input nor in the store: such objects would be garbage collected.

    Returns  the number of changed objects
    """
    listed = list(documents)
    known = {uid for one in listed if (uid := one["metadata"].get("uid"))}
    known.update(record.document()["metadata"]["uid"] for kind in store.kinds.stored for record in store.all(kind))
    count = 0
    for one in listed:
        held = one["metadata"].get("ownerReferences")
        if not isinstance(held, list):
            continue
        kept = [ref for ref in held if not isinstance(ref, dict) or ref.get("uid") in known]
        if len(kept) < len(held):
            one["metadata"]["ownerReferences"] = kept
            count += 1
    return count


def _missing_accounts(documents: Sequence[Document]) -> list[Document]:
    """Return the service accounts that pods name, or will name, and that are not among the documents."""
    held = {_place(one) for one in documents if one["kind"] == "ServiceAccount"}
    made: dict[_Place, Document] = {}
    for one in documents:
        for path in _POD_SPECS:
            name = _part(one, *path).get("serviceAccountName")
            place = _place(one)[0], str(name)
            if isinstance(name, str) and name not in {"", "default"} and place not in held:
                metadata = {"name": name, "namespace": place[0]}
                made[place] = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    return [*made.values()]


def _plain(found: FoundObject) -> Document:
    payload = found.payload
    document: Document = payload if isinstance(payload, dict) else msgspec.json.decode(bytes(payload))
    return {"metadata": {}, **document, "apiVersion": found.api_version, "kind": found.kind}


def _keep(store: Store, kind: ServedKind, document: Document, where: str, left: Counter[str]) -> str:
    """Store one object; return the fault, "" on success."""
    title = f"{where}: {kind.kind} {document['metadata'].get('name', '')}"
    try:
        document, _ = fit(form_of_kind(kind), document)
    except FieldTypeError as misfit:
        return f"{title}: {misfit}"
    document |= {"apiVersion": kind.api_version, "kind": kind.kind}
    metadata = document["metadata"]
    if kind.namespaced:
        metadata["namespace"] = metadata.get("namespace") or "default"
        spaces, name = find_kind("namespaces"), metadata["namespace"]
        if spaces is not None and store.find(spaces, "", name) is None:
            store.create(spaces, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    else:
        metadata.pop("namespace", None)
    try:
        if metadata.get("name") and (metadata.get("uid") or document.get("status")):
            store.adopt(kind, document)
        else:
            store.create(kind, metadata.get("namespace", ""), document)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            return f"{title}: {error}"
        if kind.kind != "Namespace":
            left[f"{kind.kind} left out: already exists"] += 1
    return ""
