"""Apply the admission policies of an input to the objects that a run creates, or that a change replaces.

ValidatingAdmissionPolicies and MutatingAdmissionPolicies apply through their bindings, as kube-apiserver applies them: to each
object without a creation time, and to each pod that a workload lacks. Objects that a dump has already are left as they are.
Policies read fields that scheduling does not, so objects are judged as they were written in the input.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moorage.api.core import ObjectMeta, Pod, PodSpec
from moorage.api.decode import decode
from moorage.api.defaults import default_pod
from moorage.api.documents.http_messages import User
from moorage.api.documents.served_kinds import ServedKind
from moorage.api.documents.statuses import ApiError
from moorage.api.kinds import Kind
from moorage.basis.inputs.simulated_kinds import KINDS
from moorage.basis.printable import counted, one_line, some
from moorage.errors import InputError
from moorage.rules.admission.strategy import set_defaults_and_decode
from moorage.rules.store.admission_policies import AdmissionPolicies
from moorage.rules.store.policy_requests import requested_by
from moorage.rules.store.store import Store
from moorage.simulator.cluster_input import SLOTS, ClusterInput, WrittenKey, WrittenObjects
from moorage.simulator.owners import controller_of, is_made_for
from moorage.simulator.quotas import Refused, is_new

_KINDS: Final = {kind.slot: kind for kind in KINDS}
_WORKLOADS: Final = {_KINDS[slot].name: slot for slot in (
    "cron_jobs", "daemon_sets", "deployments", "jobs", "replica_sets", "replication_controllers", "stateful_sets",
)}  # fmt: skip
#: Kinds whose pods others create: these go by the name of the owner's controller.
_CONTROLLERS: Final = {"DaemonSet": "daemon-set-controller", "ReplicationController": "replication-controller"}
#: Who writes the manifests of an input.
MANIFEST_USER: Final = User("kubernetes-admin", ("kubeadm:cluster-admins", "system:authenticated"))
#: Before all others: a policy looks up the namespace of an object.
_FIRST: Final = "namespaces"


@dataclass(slots=True)
class PolicyAdmission:
    """The policies of an input, in a store without other objects than those that policies look up.

    ``denied``: workloads that are refused, with the reason: their pods are not created
    """

    written: WrittenObjects
    store: Store
    policies: AdmissionPolicies
    denied: dict[WrittenKey, Refused] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _warned: dict[str, list[str]] = field(default_factory=dict)
    #: Specs by what policies made of them, so that pods with equal specs share one.
    _specs: dict[bytes, PodSpec] = field(default_factory=dict)
    #: The complete form of the spec that pods share, by its id; the spec is kept so that its id is not reused.
    _complete: dict[tuple[int, str], tuple[PodSpec, bytes]] = field(default_factory=dict)

    @classmethod
    def of(cls, given: ClusterInput) -> PolicyAdmission | None:
        """Return the policies of an input; None if it has none.

        Raises  InputError for an invalid policy
        """
        written = given.written
        if written is None or not written.policies:
            return None
        store = Store(lambda: 0.0, random.Random(0), b"")  # noqa: S311  # draws names, no secrets
        adopt_policies(store, written, [("", plain_document(_KINDS[_FIRST], one)) for one in given.namespaces])
        return cls(written, store, AdmissionPolicies(store))

    # -- objects -------------------------------------------------------------------------------------------------------

    def objects(self, given: ClusterInput) -> ClusterInput:
        """Return an input with its new and replaced objects as policies change them, and without those that they refuse.

        Workloads that are refused stay, so that ``pods`` can say which pods they lack.
        """
        fields: dict[str, Any] = {}
        for slot in sorted(SLOTS - {"pods"}, key=lambda slot: slot != _FIRST):
            before = getattr(given, slot)
            after = tuple(self._admitted(_KINDS[slot], before))
            if after != before:
                fields[slot] = after
        return with_fields(given, **fields) if fields else given

    def _admitted(self, kind: Kind, objects: Iterable[Any]) -> Iterator[Any]:
        for obj in objects:
            key = (kind.slot, obj.metadata.namespace, obj.metadata.name)
            old = self.written.replaced.get(key)
            if key not in self.written.objects or (old is None and obj.metadata.creation_timestamp is not None):
                yield obj
                continue
            document = self._document(kind, obj, self.written.objects[key])
            document["metadata"].setdefault("creationTimestamp", self.store.now)
            before = None if old is None else msgspec.json.decode(old)
            refused, changed = self._judged(kind, document, before, MANIFEST_USER)
            if refused is None:
                yield _reread(kind, obj, document) if changed else obj
            elif kind.name in _WORKLOADS:
                self.denied[key] = refused
                yield obj
            else:
                self.notes.append(f"the API server rejects {kind.name} {obj.key}, so it is left out: {refused.message}")
                if old is not None:
                    yield decode(old, kind.type, obj.key)

    # -- pods ----------------------------------------------------------------------------------------------------------

    def pods(self, cluster: ClusterInput) -> tuple[ClusterInput, list[tuple[Pod, Refused]]]:
        """Return a cluster with its new pods as policies change them; and the pods that they refuse, with their claims."""
        owned = [*(("ReplicaSet", one) for one in cluster.replica_sets), *(("Job", one) for one in cluster.jobs)]
        above = {(kind, one.key): controller_of(one.metadata) for kind, one in owned}
        kept: list[Pod] = []
        refused: list[tuple[Pod, Refused]] = []
        for pod in cluster.pods:
            if not is_new(pod):
                kept.append(pod)
                continue
            owner = controller_of(pod.metadata)
            by = "" if owner is None else owner.kind
            top = None if owner is None else above.get((by, f"{pod.namespace}/{owner.name}")) or owner
            key = ("pods", pod.namespace, pod.name)
            if top is not None:
                key = (_WORKLOADS.get(top.kind, ""), pod.namespace, top.name)
            made, why = self._pod(pod, key, controller_user(by) if by else MANIFEST_USER)
            if why is None:
                kept.append(made)
            else:
                refused.append((pod, why))
        gone = {pod.uid for pod, _ in refused}
        warnings = (
            f"admission policies warn about {counted(len(names), 'object')} ({some(names)}): {text}"
            for text, names in self._warned.items()
        )
        notes = map(one_line, (*self.notes, *warnings))
        report = with_fields(cluster.report, notes=(*cluster.report.notes, *notes))
        claims = tuple([one for one in cluster.persistent_volume_claims if not is_made_for(one, gone)])
        devices = tuple([one for one in cluster.resource_claims if not is_made_for(one, gone)])
        cluster = with_fields(
            cluster, pods=tuple(kept), persistent_volume_claims=claims, resource_claims=devices, report=report
        )
        return cluster, refused

    def _pod(self, pod: Pod, key: WrittenKey, user: User) -> tuple[Pod, Refused | None]:
        """Return a new pod as policies change it; and why it is refused, if it is. ``key``: where its spec was written."""
        if key in self.denied:
            return pod, self.denied[key]
        kind = _KINDS["pods"]
        shared = (id(pod.spec), "/".join(key) if key[0] == "pods" else key[0])
        if shared not in self._complete:
            document = self._document(kind, pod, _pod_text(key[0], self.written.objects.get(key)))
            self._complete[shared] = (pod.spec, msgspec.json.encode(document["spec"]))
        metadata = plain_document(kind, pod)["metadata"]
        metadata.setdefault("creationTimestamp", self.store.now)
        spec = msgspec.json.decode(self._complete[shared][1])
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        refused, changed = self._judged(kind, document, None, user)
        if refused is not None or not changed:
            return pod, refused
        made: Pod = _reread(kind, pod, document)
        text = msgspec.json.encode(document["spec"])
        return replace(made, spec=self._specs.setdefault(text, made.spec)), None

    # -- one object ----------------------------------------------------------------------------------------------------

    def _document(self, kind: Kind, obj: Any, text: bytes | None) -> dict[str, Any]:
        """Return an object as it was written, with what has been changed since, and with defaults."""
        document = plain_document(kind, obj) if text is None else document_of(kind, obj, text)
        served = self._served(kind)
        if served is not None:
            set_defaults_and_decode(served, document)
        return document

    def _judged(
        self, kind: Kind, document: dict[str, Any], old: dict[str, Any] | None, user: User
    ) -> tuple[Refused | None, bool]:
        """Let policies change a document, in place, then check it. Return why it is refused, and whether it was changed."""
        served = self._served(kind)
        if served is None:
            return None, False
        changed, by = False, "MutatingAdmissionPolicy"
        name = document["metadata"]["name"]
        with requested_by(user) as warnings:
            try:
                changed = self.policies.mutate(served, old, document)
                if changed:
                    set_defaults_and_decode(served, document)
                by = "ValidatingAdmissionPolicy"
                self.policies.check(served, old, document)
            except ApiError as error:
                why = str(error).partition(" is forbidden: ")[2] or str(error)
                return Refused(served.resource, name, why, by=by, group=served.group), changed
            finally:
                for text in dict.fromkeys(warnings):
                    self._warned.setdefault(text, []).append(f"{kind.name} {document['metadata'].get('namespace', '')}/{name}")
        return None, changed

    def _served(self, kind: Kind) -> ServedKind | None:
        return self.store.kinds.find_type(kind.api_version, kind.name)


def adopt_policies(store: Store, written: WrittenObjects, namespaces: Iterable[tuple[str, dict[str, Any]]] = ()) -> None:
    """Store the policies of an input and what they read. ``namespaces``: documents, each with its place in the input.

    Raises  InputError for an invalid policy
    """
    texts = [*written.policies.values(), *written.parameters.values()]
    adopted = [*namespaces, *((where, msgspec.json.decode(text)) for where, text in texts)]
    for where, document in sorted(adopted, key=lambda one: _turn(one[1])):
        kind = store.kinds.find_type(document["apiVersion"], document["kind"])
        if kind is not None:  # else a custom kind without a definition, of which no policy can have parameters
            _adopt(store, kind, document, where)


def _turn(document: Mapping[str, Any]) -> int:
    """Return when to store an object: namespaces and definitions of kinds first, policies last."""
    first = ("Namespace", "CustomResourceDefinition")
    return first.index(document["kind"]) if document["kind"] in first else 3 if _is_policy(document) else 2


def _is_policy(document: Mapping[str, Any]) -> bool:
    return bool(document["apiVersion"].startswith("admissionregistration.k8s.io/"))


def _adopt(store: Store, kind: ServedKind, document: dict[str, Any], where: str) -> None:
    metadata = document["metadata"]
    if kind.namespaced:
        metadata.setdefault("namespace", "default")
    if store.find(kind, metadata.get("namespace") or "", metadata["name"]) is not None:
        return  # a namespace that every cluster has
    try:
        if _is_policy(document):
            metadata.pop("resourceVersion", None)  # a dump has it
            store.create(kind, "", document)
        else:
            store.adopt(kind, document)
    except (ApiError, InputError) as error:
        raise InputError(f"{where}: {error}") from None


def controller_user(kind: str) -> User:
    """Return the user name and the groups of the controller that creates the pods of a kind."""
    name = _CONTROLLERS.get(kind) or f"{kind.lower()}-controller"
    groups = ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
    return User(f"system:serviceaccount:kube-system:{name}", groups)


def _pod_text(slot: str, text: bytes | None) -> bytes | None:
    """Return the JSON of a pod, or of the pod template in a workload."""
    if text is None or slot == "pods":
        return text
    spec = msgspec.json.decode(text)["spec"]
    template = (spec["jobTemplate"]["spec"] if slot == "cron_jobs" else spec)["template"]
    return msgspec.json.encode(template)


def document_of(kind: Kind, obj: Any, text: bytes) -> dict[str, Any]:
    """Return an object as it was written, as JSON, with what has been changed since."""
    found: dict[str, Any] = with_changes(
        msgspec.json.decode(text), plain_document(kind, decode(text, kind.type, obj.key)), plain_document(kind, obj)
    )
    return found


def plain_document(kind: Kind, obj: Any) -> dict[str, Any]:
    """Return the document of an object, with the fields that simulations read."""
    plain: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind.name, **msgspec.json.decode(msgspec.json.encode(obj))}
    plain.setdefault("metadata", {})
    return plain


def _reread(kind: Kind, obj: Any, document: Mapping[str, Any]) -> Any:
    """Return the object for a document that policies changed; it keeps its creation time, or the lack of one."""
    made = decode(msgspec.json.encode(document), kind.type, obj.key)
    metadata: ObjectMeta = replace(made.metadata, creation_timestamp=obj.metadata.creation_timestamp, uid=obj.metadata.uid)
    made = replace(made, metadata=metadata)
    return default_pod(made) if isinstance(made, Pod) else made


def with_changes(written: Any, before: Any, after: Any) -> Any:
    """Return what was written, with the changes from ``before`` to ``after``; these lack the fields that scheduling ignores."""
    if before == after:
        return written
    values = (written, before, after)
    if all(isinstance(one, dict) for one in values):
        kept = {name: value for name, value in written.items() if name not in before}
        return kept | {
            name: with_changes(written[name], before[name], value) if name in written and name in before else value
            for name, value in after.items()
        }
    if all(isinstance(one, list) for one in values) and len(written) == len(before) <= len(after):
        return [*map(with_changes, written, before, after), *after[len(before) :]]
    return after
