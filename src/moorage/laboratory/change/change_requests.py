"""The requests behind changes: as kubectl commands to paste, and as the API server judges them.

A change of a pod is a request about what the pod comes from: a patch of its workload's template, a patch of the pod itself
where the API server allows that, or a new object in place of one that cannot change, such as a Job. The changes of one object
are one request. Each request is made, as a dry run, at a store with the objects that admission and validation read, and so is
the request of the controller that creates the pod from the changed template. A change is impossible if one of the two is
refused, if a quota has no room for the changed pod in place of the old one, or if admission gives the pod what it had before.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from moorage.api.core import (
    ENDED_PHASES,
    Namespace,
    Node,
    Object,
    Pod,
    PodSpec,
    PodTemplateSpec,
    ReplicationController,
    ResourceQuota,
)
from moorage.api.documents.http_messages import User
from moorage.api.documents.object_fields import scaled
from moorage.api.workloads import DaemonSet, Deployment, Job, PriorityClass, ReplicaSet, StatefulSet
from moorage.basis.inputs.simulated_kinds import KINDS
from moorage.basis.printable import one_line
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.change.api_verdicts import ApiVerdicts
from moorage.laboratory.change.change_text import in_namespace, node_command, scale_command, workload_command, workload_of
from moorage.laboratory.cluster_objects import cluster_input
from moorage.laboratory.edit.changes import apply, is_transient
from moorage.laboratory.edit.pod_changes import POD_CHANGES
from moorage.laboratory.surroundings import Surroundings
from moorage.simulator.admission_policies import MANIFEST_USER, controller_user, plain_document, with_changes
from moorage.simulator.owners import controller_of
from moorage.simulator.quotas import QuotaLedger, is_new

#: Workloads whose template can be changed.
_PATCHED: Final[Mapping[str, type[Object]]] = {
    kind.__name__: kind for kind in (Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController)
}
#: Fields of an existing pod that the API server lets clients change.
_MUTABLE: Final = frozenset(["tolerate", "tolerate-own", "ungate"])
#: Labels that the API server gives to a Job and to its template; a copy of the Job gets its own.
_OF_A_JOB: Final = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")
#: Changes of the priority class.
_OF_CLASSES: Final = frozenset(["priority-class", "create-class"])
#: Changes of pods that are made by other means than their template.
_NOT_OF_TEMPLATES: Final = frozenset(["surge", "scale", "evict", "move", "wait"])
#: Fields of a pod that say where it may go, which admission may set.
_OF_PODS: Final = ("node_selector", "scheduling_gates", "affinity")
#: Fields of a node that say which pods may go there.
_OF_PLACEMENT: Final = (("metadata", "labels"), ("spec", "taints"), ("spec", "unschedulable"))
#: Fields of a node that another one does not have.
_OF_ONE_NODE: Final = frozenset(["podCIDR", "podCIDRs", "providerID", "unschedulable"])
_KINDS: Final = {kind.type: kind for kind in KINDS}


class _Subject(NamedTuple):
    """What is changed for a pod. ``kind`` is "Pod" for the pod itself; ``workload`` is None if the input does not have it."""

    kind: str
    namespace: str
    name: str
    workload: Object | None


class _Request(NamedTuple):
    """A changed object: its document before and after, what makes its pods, the pod, and the spec that it should have."""

    subject: _Subject
    before: dict[str, Any]
    after: dict[str, Any]
    template: PodTemplateSpec
    pod: Pod
    wanted: PodSpec
    is_patch: bool


class ChangeRequests:
    """The requests behind changes of a cluster."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._refusals: dict[frozenset[Change], str] = {}
        self._api = ApiVerdicts(around)

    # -- commands ------------------------------------------------------------------------------------------------------

    def commands(self, changes: Iterable[Change]) -> tuple[str, ...]:
        """Return the kubectl commands that make some changes, in the order in which to run them; none where there is none."""
        made = list(changes)
        found: dict[str, None] = {}
        for change in made:
            if change.verb == "create-class":
                name, _, value = str(change.new).partition("=")
                found[f"kubectl create priorityclass {shlex.quote(name)} --value={value}"] = None
        for some in self._by_subject(made):
            if text := self._command(some):
                found[text] = None
        scaled: dict[tuple[str, str], list[Change]] = {}
        for change in made:
            if change.verb == "scale":
                scaled.setdefault((change.target.rpartition("/")[0], change.path), []).append(change)
        for some in scaled.values():
            found[scale_command(some)] = None
        for change in made:
            if change.verb in {"evict", "move", "surge"}:
                found[workload_command(change)] = None
            elif not change.target.startswith("pod/") and (text := node_command(change)):
                found[text] = None
        return tuple(found)

    def _by_subject(self, changes: Iterable[Change]) -> list[list[Change]]:
        """Return the changes of pods, those of one object together."""
        found: dict[tuple[str, str, str], list[Change]] = {}
        for change in changes:
            pod = self._pod(change)
            if pod is not None and change.verb in POD_CHANGES and change.verb not in _NOT_OF_TEMPLATES:
                found.setdefault(self._subject(pod)[:3], []).append(change)
        return list(found.values())

    def _command(self, changes: Sequence[Change]) -> str:
        """Return the command for changes of one object; "" if there is none."""
        try:
            made = self._request(changes)
        except InputError:
            return ""
        if made is None:
            return ""
        kind, namespace, name, _ = made.subject
        where = in_namespace(namespace)
        operations = [*difference(made.before, made.after, "")]
        if kind == "Deployment" and self._repels(changes, made):
            operations.append({"op": "add", "path": "/spec/strategy", "value": {"type": "Recreate"}})
        patch = _json_text(operations)
        if made.is_patch:
            text = f"kubectl patch {kind.lower()} {shlex.quote(name)}{where} --type=json -p={shlex.quote(patch)}"
            gone = [pod.name for pod in self._deleted(changes, made)]
            by_both = len(gone) > 1 or getattr(_spec(made), "pod_management_policy", "") == "Parallel"
            return " && ".join([text, *_deleting([*dict.fromkeys(gone)], where, lenient=by_both)])
        get = f"kubectl get {kind.lower()} {shlex.quote(name)}{where} -o json"
        local = "kubectl patch --local -f - -o json"
        steps = [get]
        if kind == "Job":
            labels = {"labels": dict.fromkeys(_OF_A_JOB)}
            spec = {"selector": None, "template": {"metadata": labels}}
            bare = {"metadata": labels, "spec": spec}
            steps.append(f"{local} --type=merge -p={shlex.quote(_json_text(bare))}")
        steps += [f"{local} --type=json -p={shlex.quote(patch)}", "kubectl replace --force -f -"]
        return " | ".join(steps)

    def _deleted(self, changes: Sequence[Change], made: _Request) -> list[Pod]:
        """Return the pods that the command deletes beside its patch: no controller replaces them in time."""
        if not made.is_patch or made.subject.kind in {"Pod", "Deployment"}:
            return []
        others = self._repels(changes, made)
        return [*others, *([made.pod] if others or _stays(made) else ())]

    def _repels(self, changes: Sequence[Change], made: _Request) -> list[Pod]:
        """Return the other pods of a workload if some of them keep new pods away for as long as they run."""
        repelling = self._repelling(changes) if made.is_patch and made.subject.kind != "Pod" else []
        return repelling if any(pod.spec.node_name for pod in repelling) else []

    def _repelling(self, changes: Sequence[Change]) -> list[Pod]:
        """Return the other pods of a workload whose anti-affinity changes with its template.

        They keep new pods away for as long as they run, so that a rollout that waits for new pods never ends. One that waits
        with the old rule would take the place of one that leaves.
        """
        if not any(one.verb == "prefer" and one.path == "affinity.podAntiAffinity" for one in changes):
            return []
        pod = self._pod(changes[0])
        assert pod is not None
        subject = self._subject(pod)[:3]
        others = (one for one in self._around.all_of(Pod) if isinstance(one, Pod) and one.namespace == pod.namespace)
        mine = (one for one in others if one.key != pod.key and self._subject(one)[:3] == subject)
        return [one for one in mine if is_new(pod) or not is_new(one)]  # its controller may not have created all of them

    # -- verdicts ------------------------------------------------------------------------------------------------------

    def refusal(self, changes: Collection[Change]) -> str:
        """Return why the API server refuses some changes, or what undoes them; "" if they are possible."""
        key = frozenset(changes)
        if key not in self._refusals:
            self._refusals[key] = one_line(self._judged(key))
        return self._refusals[key]

    def _judged(self, changes: frozenset[Change]) -> str:
        for change in sorted(changes, key=lambda one: (one.verb, one.target, one.path)):
            if why := self._one_judged(change):
                return why
        ledger = self._ledger.copy() if self._ledger else None
        for some in self._by_subject(sorted(changes, key=lambda one: (one.verb, one.target, one.path))):
            try:
                made = self._request(some)
            except InputError as error:
                return str(error)
            if made is not None and (why := self._refused(made, ledger) or self._keeps(some, made)):
                return why
        return ""

    def _one_judged(self, change: Change) -> str:
        """Return why the API server refuses a change that is a request of its own."""
        match change.verb:
            case "create-class":
                return self._creates_class(change)
            case "add-node":
                return self._adds_node(change)
            case "evict" | "move":
                pod = self._pod(change)
                return "" if pod is None else self._api.why_not_deleted(pod)
            case "scale" | "surge":
                return self._changes_workload(change)
        return self._changes_object(change) if change.target.startswith(("node/", "namespace/")) else ""

    def _adds_node(self, change: Change) -> str:
        """Return why the API server refuses the node that a kubelet registers."""
        like = self._around.find(Node, "", str(change.new).removeprefix("like "))
        return self.why_not_registered(like) if isinstance(like, Node) else ""

    def why_not_registered(self, like: Node) -> str:
        """Return why the API server refuses a node like this one, or what it makes of it."""
        document = self._api.document(like)
        document["spec"] = {name: value for name, value in document.get("spec", {}).items() if name not in _OF_ONE_NODE}
        user = User(f"system:node:{like.name}", ("system:nodes", "system:authenticated"))
        why, found = self._api.why_not_created(Node, "", document, user)
        if found is None:
            return why
        kept = all(_placing(found[part].get(name)) == _placing(document[part].get(name)) for part, name in _OF_PLACEMENT)
        return "" if kept else "admission makes another node of it"

    def _changes_workload(self, change: Change) -> str:
        """Return why the API server refuses another number of replicas, or another strategy of rollouts."""
        kind, _, name = change.path.partition("/")
        struct = next((one for title, one in _PATCHED.items() if title.lower() == kind), None)
        namespace = change.target.removeprefix("pod/").partition("/")[0]
        held = None if struct is None else self._around.find(struct, namespace, name)
        if struct is None or held is None:
            return ""
        if change.verb == "scale":
            return self._api.why_not_scaled(held, int(str(change.new)))
        document = self._api.document(held)
        document["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
        return self._api.why_not_updated(struct, namespace, name, document)

    def _creates_class(self, change: Change) -> str:
        name, _, value = str(change.new).partition("=")
        document = {
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": int(value),
        }  # fmt: skip
        return "" if self._api.has(PriorityClass, "", name) else self._api.create(PriorityClass, document)

    def _changes_object(self, change: Change) -> str:
        """Return why the API server refuses a changed node or namespace."""
        kind, _, name = change.target.partition("/")
        held = self._around.find(Namespace if kind == "namespace" else Node, "", name)
        if held is None or change.verb not in {"label", "relabel", "taint", "untaint", "cordon", "uncordon"}:
            return ""
        try:
            (changed,) = apply([held], change)
        except InputError as error:
            return str(error)
        document = plain_document(_KINDS[type(held)], held)
        after = with_changes(self._api.document(held), document, plain_document(_KINDS[type(held)], changed))
        return self._api.why_not_updated(type(held), "", name, after)

    def _keeps(self, changes: Sequence[Change], made: _Request) -> str:
        """Return why the API server does not delete what the command deletes."""
        gone: list[Object] = [*self._deleted(changes, made)]
        if not made.is_patch:
            gone.append(made.pod if made.subject.workload is None else made.subject.workload)
        return next(filter(None, map(self._api.why_not_deleted, gone)), "")

    def _refused(self, made: _Request, ledger: QuotaLedger | None) -> str:
        """Return why the API server refuses an object or the pod that is made of it, or what of the change it undoes.

        ``ledger`` counts the pods that are made.
        """
        kind, namespace, name, workload = made.subject
        if kind == "Pod" and made.is_patch:
            return self._api.why_not_updated(Pod, namespace, name, made.after)
        if workload is not None and made.is_patch:
            why = self._api.why_not_updated(type(workload), namespace, name, made.after)
        elif kind == "Job" and workload is not None:
            why = self._api.why_not_created(Job, namespace, made.after)[0]
        else:
            why = ""
        if why:
            return why
        why, found = self._creates_pod(made, made.after)
        if why or found is None:
            is_complete = workload is not None and self._api.is_complete(type(workload), namespace, name)
            return why if is_complete or self._creates_pod(made, made.before)[0] != why else ""
        if ledger is not None:
            leaves_first = self._leaves_first(made)
            if why := _over_quota(made, _spec_of(found), ledger, leaves_first=leaves_first):
                return why
        old, wanted, got = (msgspec.to_builtins(one) for one in (made.pod.spec, made.wanted, _spec_of(found)))
        if not carries(old, wanted, got):
            return "admission gives the pod what it had before"
        fields = _OF_PODS if kind != "DaemonSet" else _OF_PODS[:-1]  # its controller names the node of each pod there
        kept = all(getattr(made.wanted, name) == getattr(_spec_of(found), name) for name in fields)
        return "" if kept else "admission makes another pod of it"

    @cached_property
    def _ledger(self) -> QuotaLedger:
        """The quotas of the cluster, with the use of all its pods."""
        quotas = self._around.all_of(ResourceQuota)
        pods = self._pods if quotas else []
        ledger = QuotaLedger.of(cluster_input([*quotas, *pods]))
        for pod in pods:
            if is_new(pod):
                ledger.count(pod)
        return ledger

    def _leaves_first(self, made: _Request) -> bool:
        """Return whether a quota counts the old pod no more when the new one is created.

        ``kubectl replace --force`` does not wait for that, and a rollout may have to create the new pod first. While other
        workloads of the namespace lack pods, these take what becomes free.
        """
        kind, namespace, _, workload = made.subject
        if kind == "Pod" or (isinstance(workload, Deployment) and not _may_be_unavailable(workload)):
            return False
        pods = Counter((one.kind, one.name) for pod in self._pods if (one := controller_of(pod.metadata)) is not None
                       and pod.namespace == namespace and pod.status.phase not in ENDED_PHASES)  # fmt: skip
        every: list[Any] = [*self._around.all_of(ReplicaSet), *self._around.all_of(StatefulSet)]
        return not any(
            pods[type(one).__name__, one.metadata.name] < (1 if one.spec.replicas is None else one.spec.replicas)
            for one in every if one.metadata.namespace == namespace
        )  # fmt: skip

    @cached_property
    def _pods(self) -> list[Pod]:
        return [one for one in self._around.all_of(Pod) if isinstance(one, Pod)]

    def _creates_pod(self, made: _Request, owner: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
        """Return why the pod that an object makes is refused, and otherwise the pod after admission."""
        by = controller_of(made.pod.metadata)
        user = MANIFEST_USER if by is None else controller_user(by.kind)
        return self._api.why_not_created(Pod, made.subject.namespace, _plain_pod(made, owner), user)

    def why_not_drained(self, node: Node, pods: Iterable[Pod]) -> Iterator[tuple[str, str]]:
        """Yield why the API server refuses to cordon a node ("") or to evict one of its pods, by ``namespace/name``."""
        if why := self.refusal([Change("node", "cordon", f"node/{node.name}", "unschedulable", False, True)]):
            yield "", why
        for pod in pods:
            if why := self._api.why_not_evicted(pod):
                yield pod.key, one_line(why)

    def why_not_patched(self, obj: Object, changed: Object) -> str:
        """Return why the API server refuses another version of an object."""
        if not self._api.serves(type(obj)):
            return ""
        kind = _KINDS[type(obj)]
        after = with_changes(self._api.document(obj), plain_document(kind, obj), plain_document(kind, changed))
        return one_line(self._api.why_not_updated(type(obj), obj.metadata.namespace, obj.metadata.name, after))

    # -- requests ------------------------------------------------------------------------------------------------------

    def _key(self, change: Change) -> tuple[str, str]:
        namespace, _, name = change.target.removeprefix("pod/").partition("/")
        return namespace, name

    def _pod(self, change: Change) -> Pod | None:
        if not change.target.startswith("pod/"):
            return None
        found = self._around.find(Pod, *self._key(change))
        return found if isinstance(found, Pod) else None

    def _subject(self, pod: Pod) -> _Subject:
        kind, name = workload_of(pod, self._around) or ("Pod", pod.name)
        held = self._around.find(Job if kind == "Job" else _PATCHED.get(kind, Pod), pod.namespace, name)
        return _Subject(kind, pod.namespace, name, pod if kind == "Pod" else held)

    def _request(self, changes: Sequence[Change]) -> _Request | None:
        """Return the request for changes of one object; None if it is of a kind that makes its pods in its own way.

        Raises  InputError if the object has nothing of what a change is about
        """
        pod = self._pod(changes[0])
        assert pod is not None
        subject = self._subject(pod)
        own = [one for one in changes if one.target == changes[0].target]  # the pods of a workload change alike
        wanted = _changed(pod, own)
        if subject.kind == "Pod":
            before = self._document(pod)
            asked = _asked(wanted.spec, own)
            after = self._after(before, pod, replace(pod, spec=asked))
            template = PodTemplateSpec(metadata=pod.metadata, spec=replace(asked, node_name=""))
            is_patch = all(one.verb in _MUTABLE for one in own)
            return _Request(subject, before, after, template, pod, wanted.spec, is_patch)
        if subject.kind not in _PATCHED and subject.kind != "Job":
            return None
        if subject.workload is None:
            return self._guessed(subject, pod, wanted.spec, _asked(wanted.spec, own))
        held: Any = subject.workload
        changed = _changed(replace(pod, spec=held.spec.template.spec), own)
        template = replace(held.spec.template, spec=_asked(changed.spec, own))
        before = self._document(held)
        after = self._after(before, held, replace(held, spec=replace(held.spec, template=template)))
        return _Request(subject, before, after, template, pod, wanted.spec, subject.kind != "Job")

    def _guessed(self, subject: _Subject, pod: Pod, wanted: PodSpec, asked: PodSpec) -> _Request:
        """Return the request for a workload that the input lacks: its template is like its pod."""
        before, after = (
            {"spec": {"template": {"spec": plain_document(_KINDS[Pod], replace(pod, spec=one))["spec"]}}}
            for one in (pod.spec, asked)
        )
        template = PodTemplateSpec(metadata=pod.metadata, spec=asked)
        return _Request(subject, before, after, template, pod, wanted, is_patch=subject.kind != "Job")

    def _after(self, before: dict[str, Any], old: Object, new: Object) -> dict[str, Any]:
        kind = _KINDS[type(old)]
        documents = (plain_document(kind, one) for one in (old, new))
        after: dict[str, Any] = with_changes(before, *(map(_bare, documents) if isinstance(old, Job) else documents))
        return after

    def _document(self, obj: Object) -> dict[str, Any]:
        """Return an object as the API server has it, without what only it writes."""
        return _bare(self._api.document(obj)) if isinstance(obj, Job) else self._api.document(obj)


def _bare(job: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a Job without the selector and the labels that the API server makes for it, changed in place."""
    if not job["spec"].get("manualSelector"):
        job["spec"].pop("selector", None)
        for where in (job, job["spec"]["template"]):
            labels = where.get("metadata", {}).get("labels") or {}
            for name in _OF_A_JOB:
                labels.pop(name, None)
    return job


def _placing(value: Any) -> Any:
    """Return a field of a node; of taints, those that do not stand for a condition."""
    return [one for one in value or () if not is_transient(one["key"])] if isinstance(value, list | None) else value


def _changed(pod: Pod, changes: Iterable[Change]) -> Pod:
    for change in changes:
        pod = POD_CHANGES[change.verb](pod, change)
    return pod


def _asked(spec: PodSpec, changes: Iterable[Change]) -> PodSpec:
    """Return the spec that a client sends: admission sets what follows from a priority class."""
    if any(one.verb in _OF_CLASSES for one in changes):
        return replace(spec, priority=None, preemption_policy=None)
    return spec


def _stays(made: _Request) -> bool:
    """Return whether the workload does not replace a pod that waits when its template changes.

    A StatefulSet waits for it, unless its pods are managed in parallel and all of them are there; a DaemonSet does with
    ``OnDelete``.
    """
    match made.subject.kind:
        case "ReplicaSet" | "ReplicationController" | "StatefulSet":
            return True
        case "DaemonSet":
            return (made.after.get("spec", {}).get("updateStrategy") or {}).get("type") == "OnDelete"
    return False


def _spec(made: _Request) -> Any:
    return getattr(made.subject.workload, "spec", None)


def _deleting(names: Sequence[str], where: str, *, lenient: bool) -> Iterator[str]:
    """Yield the command that deletes pods; ``lenient``: their controller may have deleted some already."""
    if names:
        option = " --ignore-not-found" if lenient else ""
        yield f"kubectl delete pod {' '.join(map(shlex.quote, names))}{where}{option}"


def _plain_pod(made: _Request, owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a pod as its controller, or a person, creates it from an object; controllers add labels."""
    template = owner["spec"] if made.subject.kind == "Pod" else owner["spec"]["template"]["spec"]
    meta = made.template.metadata
    labels = {**made.pod.metadata.labels, **meta.labels}
    metadata = replace(
        meta, labels=labels, namespace=made.subject.namespace, owner_references=made.pod.metadata.owner_references
    )
    found = plain_document(_KINDS[Pod], Pod(metadata=metadata))["metadata"]
    kept = {name: found[name] for name in ("labels", "annotations", "namespace", "ownerReferences") if name in found}
    spec = {name: value for name, value in template.items() if name != "nodeName"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec}


def _over_quota(made: _Request, spec: PodSpec, ledger: QuotaLedger, *, leaves_first: bool) -> str:
    """Return why a quota refuses the changed pod; count it if there is room. ``leaves_first``: the old one counts no more."""
    changed = replace(made.pod, spec=replace(spec, node_name=""))
    if leaves_first:
        ledger.release(made.pod)
    refused = ledger.refusal(changed)
    if refused is None:
        ledger.count(changed)
    return "" if refused is None else refused.message


def _may_be_unavailable(deployment: Deployment) -> bool:
    """Return whether a rollout of a Deployment may delete a pod before it creates another one."""
    strategy = deployment.spec.strategy
    if strategy.get("type") == "Recreate":
        return True
    rolling = strategy.get("rollingUpdate") or {}
    wanted = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    surge, fewer = (rolling.get(name, "25%") for name in ("maxSurge", "maxUnavailable"))
    return scaled(fewer, wanted, up=False) > 0 or scaled(surge, wanted, up=True) == 0


def _spec_of(document: Mapping[str, Any]) -> PodSpec:
    return msgspec.convert(document["spec"], PodSpec, strict=False)


def carries(old: Any, wanted: Any, got: Any) -> bool:
    """Return whether a value has what a change of another one changes; all are plain values.

    Of lists, elements with names are compared by name, and others by what was added and removed.
    """
    if wanted in (old, got):
        return True
    present = [one for one in (old, wanted) if one is not None]
    if all(isinstance(one, dict) for one in present):
        maps = [one or {} for one in (old, wanted, got)]
        return all(carries(*(one.get(name) for one in maps)) for name in {*maps[0], *maps[1]})
    if all(isinstance(one, list | tuple) for one in present):
        return _carries_elements(old or (), wanted or (), got or ())
    return not got and not wanted


def _carries_elements(old: Sequence[Any], wanted: Sequence[Any], got: Sequence[Any]) -> bool:
    if len(old) == len(wanted) == len(got):
        return all(map(carries, old, wanted, got))
    named = [_named(some) for some in (old, wanted, got)]
    if all(some is not None for some in named):
        return carries(*named)
    return all(one in got for one in wanted if one not in old) and not any(one in got for one in old if one not in wanted)


def _named(values: Iterable[Any]) -> dict[str, Any] | None:
    """Return elements by their names; None if one has no name."""
    held = list(values)
    if not all(isinstance(one, dict) and one.get("name") for one in held):
        return None
    return {one["name"]: one for one in held}


def difference(before: Any, after: Any, path: str) -> Iterator[dict[str, Any]]:
    """Yield the operations of a JSON patch. Lists are compared element by element, unless they become shorter."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            at = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in after and isinstance(before[key], dict) and path.endswith("/spec"):
                yield from difference(before[key], {}, at)
            elif key not in after:
                yield {"op": "remove", "path": at}
            elif key not in before:
                yield {"op": "add", "path": at, "value": after[key]}
            else:
                yield from difference(before[key], after[key], at)
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) <= len(after):
        for i, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from difference(one, other, f"{path}/{i}")
        yield from ({"op": "add", "path": f"{path}/-", "value": one} for one in after[len(before) :])
    else:
        yield {"op": "replace", "path": path, "value": after}


def _json_text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
