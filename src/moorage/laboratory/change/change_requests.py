"""The requests behind changes: as kubectl commands to paste, and as the API server judges them.

A change of a pod is a request about what the pod comes from: a patch of its workload's template, a patch of the pod itself
where the API server allows that, or a new object in place of one that cannot change, such as a Job. The changes of one object
are one request. Each request is made, as a dry run, at a store with the objects that admission and validation read, and so is
the request of the controller that creates the pod from the changed template. A change is impossible if one of the two is
refused, if a quota has no room for the changed pod in place of the old one, or if admission gives the pod what it had before.
"""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from moorage.api.admission import RuntimeClass
from moorage.api.core import (
    LimitRange,
    Namespace,
    Node,
    Object,
    Pod,
    PodSpec,
    PodTemplateSpec,
    ReplicationController,
    ResourceQuota,
)
from moorage.api.workloads import DaemonSet, Deployment, Job, PriorityClass, ReplicaSet, StatefulSet
from moorage.basis.inputs.simulated_kinds import KINDS
from moorage.basis.printable import one_line
from moorage.errors import InputError, MoorageError
from moorage.framework.changes import Change
from moorage.laboratory.change.change_text import in_namespace, node_command, scale_command, workload_command, workload_of
from moorage.laboratory.cluster_objects import Surroundings, cluster_input
from moorage.laboratory.edit.changes import apply
from moorage.laboratory.edit.pod_changes import POD_CHANGES
from moorage.simulator.admission_policies import plain_document, with_changes
from moorage.simulator.quotas import QuotaLedger, is_new

if TYPE_CHECKING:
    from moorage.api.documents.served_kinds import ServedKind
    from moorage.rules.store.store import Store

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
_KINDS: Final = {kind.type: kind for kind in KINDS}
#: The name of a pod that a controller creates; the requests for it are dry runs.
_NEW: Final = "created-again"
#: Objects that admission looks up.
_LOOKED_UP: Final = (Namespace, PriorityClass, RuntimeClass, LimitRange)


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
        self._adopted: set[tuple[str, str, str]] = set()

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
        repelling = self._repelling(changes) if made.is_patch and kind != "Pod" else []
        also = [pod.name for pod in repelling] if any(pod.spec.node_name for pod in repelling) else []
        if also and kind == "Deployment":
            operations.append({"op": "add", "path": "/spec/strategy", "value": {"type": "Recreate"}})
        patch = _json_text(operations)
        if made.is_patch:
            text = f"kubectl patch {kind.lower()} {shlex.quote(name)}{where} --type=json -p={shlex.quote(patch)}"
            others = also if kind != "Deployment" else []
            gone = [*others, *([self._key(changes[0])[1]] if others or _stays(made) else ())]
            return " && ".join([text, *_deleting([*dict.fromkeys(gone)], where)])
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
        for change in changes:
            if change.verb == "create-class" and (why := self._creates_class(change)):
                return why
            if change.target.startswith(("node/", "namespace/")) and (why := self._changes_object(change)):
                return why
        for some in self._by_subject(sorted(changes, key=lambda one: (one.verb, one.target, one.path))):
            try:
                made = self._request(some)
            except InputError as error:
                return str(error)
            if made is not None and (why := self._refused(made)):
                return why
        return ""

    def _creates_class(self, change: Change) -> str:
        name, _, value = str(change.new).partition("=")
        document = {
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": int(value),
        }  # fmt: skip
        if ("PriorityClass", "", name) in self._adopted:
            return ""
        from moorage.api.documents.statuses import ApiError

        try:
            self._store.create(self._served(PriorityClass), "", document)
        except ApiError as error:
            return str(error)
        self._adopted.add(("PriorityClass", "", name))
        return ""

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
        after = with_changes(self._adopt(held), document, plain_document(_KINDS[type(held)], changed))
        return self._updates(type(held), "", name, after)

    def _refused(self, made: _Request) -> str:
        """Return why the API server refuses an object or the pod that is made of it, or what of the change it undoes."""
        kind, namespace, name, workload = made.subject
        if kind == "Pod" and made.is_patch:
            return self._updates(Pod, namespace, name, made.after)
        if workload is not None and made.is_patch:
            why = self._updates(type(workload), namespace, name, made.after)
        elif kind == "Job" and workload is not None:
            why = self._creates(Job, namespace, made.after)[0]
        else:
            why = ""
        if why:
            return why
        document = _plain_pod(made.template, made)
        if why := self._unless_before(made, document):
            return why
        found = self._creates(Pod, namespace, document, made.subject)[1]
        if found is None:
            return ""
        if why := self._over_quota(made, _spec_of(found)):
            return why
        old, wanted, got = (msgspec.to_builtins(one) for one in (made.pod.spec, made.wanted, _spec_of(found)))
        return "" if carries(old, wanted, got) else "admission gives the pod what it had before"

    def _over_quota(self, made: _Request, spec: PodSpec) -> str:
        """Return why a quota refuses the changed pod once the pod that it replaces is gone; "" if there is room."""
        ledger = self._ledger
        if not ledger:
            return ""
        ledger = ledger.copy()
        ledger.release(made.pod)
        refused = ledger.refusal(replace(made.pod, spec=replace(spec, node_name="")))
        return "" if refused is None else refused.message

    @cached_property
    def _ledger(self) -> QuotaLedger:
        """The quotas of the cluster, with the use of all its pods."""
        quotas = self._around.all_of(ResourceQuota)
        pods = [one for one in self._around.all_of(Pod) if isinstance(one, Pod)] if quotas else []
        ledger = QuotaLedger.of(cluster_input([*quotas, *pods]))
        for pod in pods:
            if is_new(pod):
                ledger.count(pod)
        return ledger

    def _unless_before(self, made: _Request, document: dict[str, Any]) -> str:
        """Return why the changed pod is refused, unless the same was said of it without the change."""
        why, _ = self._creates(Pod, made.subject.namespace, document, made.subject)
        if not why:
            return ""
        before = _plain_pod(replace(made.template, spec=self._template_spec(made)), made)
        return "" if self._creates(Pod, made.subject.namespace, before, made.subject)[0] == why else why

    def _template_spec(self, made: _Request) -> PodSpec:
        held = getattr(getattr(made.subject.workload, "spec", None), "template", None)
        return made.pod.spec if held is None else held.spec

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
        return _bare(self._adopt(obj)) if isinstance(obj, Job) else self._adopt(obj)

    # -- the store -----------------------------------------------------------------------------------------------------

    @cached_property
    def _store(self) -> Store:
        from moorage.rules.store.store import Store  # takes long to load

        store = Store(lambda: 0.0, random.Random(0), b"")  # noqa: S311  # draws names, no secrets
        store.has_quotas = False
        self._kinds = store.kinds
        for kind in _LOOKED_UP:
            for obj in self._around.all_of(kind):
                self._adopted.add((kind.__name__, obj.metadata.namespace, obj.metadata.name))
                _adopt(store, self._served(kind), plain_document(_KINDS[kind], obj))
        return store

    def _served(self, kind: type[Object]) -> ServedKind:
        known = _KINDS[kind]
        found = self._kinds.find_type(known.api_version, known.name)
        assert found is not None
        return found

    def _adopt(self, obj: Object) -> dict[str, Any]:
        """Return the document of an object as the API server holds it."""
        store, kind = self._store, self._served(type(obj))
        namespace = obj.metadata.namespace if kind.namespaced else ""
        held = store.find(kind, namespace, obj.metadata.name)
        if held is None:
            _adopt(store, kind, plain_document(_KINDS[type(obj)], obj))
            held = store.find(kind, namespace, obj.metadata.name)
        return plain_document(_KINDS[type(obj)], obj) if held is None else held.document()

    def _updates(self, struct: type[Object], namespace: str, name: str, document: dict[str, Any]) -> str:
        """Return why the store refuses a new version of an object, unless it refuses the present one as well."""
        from moorage.api.documents.statuses import ApiError

        kind, store = self._served(struct), self._store
        held = store.find(kind, namespace, name)
        if held is None:
            return ""
        try:
            store.update(kind, namespace, name, json.loads(json.dumps(document)), dry_run=True)
        except ApiError as error:
            try:
                store.update(kind, namespace, name, held.document(), dry_run=True)
            except ApiError as before:
                return "" if str(before) == str(error) else str(error)
            return str(error)
        return ""

    def _creates(
        self, struct: type[Object], namespace: str, document: dict[str, Any], owner: _Subject | None = None
    ) -> tuple[str, dict[str, Any] | None]:
        """Return why the store refuses a new object, and otherwise the object after admission."""
        from moorage.api.documents.statuses import ApiError

        document = json.loads(json.dumps(document))
        metadata = document["metadata"]
        for name in ("resourceVersion", "uid"):  # as kubectl does
            metadata.pop(name, None)
        metadata["name"] = _NEW
        document.pop("status", None)
        try:
            record = self._store.create(self._served(struct), namespace, document, dry_run=True)
        except ApiError as error:
            return str(error), None
        return "", record.document()


def _adopt(store: Store, kind: ServedKind, document: dict[str, Any]) -> None:
    """Store an object of the input; what no API server can have had is left out."""
    from moorage.api.documents.statuses import ApiError

    namespace = document["metadata"].get("namespace") or ""
    if store.find(kind, namespace, document["metadata"]["name"]) is not None:
        return
    try:
        store.adopt(kind, document)
    except (ApiError, MoorageError):
        return


def _bare(job: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a Job without the selector and the labels that the API server makes for it, changed in place."""
    if not job["spec"].get("manualSelector"):
        job["spec"].pop("selector", None)
        for where in (job, job["spec"]["template"]):
            labels = where.get("metadata", {}).get("labels") or {}
            for name in _OF_A_JOB:
                labels.pop(name, None)
    return job


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

    A StatefulSet waits for it, unless its pods are managed in parallel; a DaemonSet does with ``OnDelete``.
    """
    spec: Any = getattr(made.subject.workload, "spec", None)
    match made.subject.kind:
        case "ReplicaSet" | "ReplicationController":
            return True
        case "StatefulSet":
            strategy = (made.after.get("spec", {}).get("updateStrategy") or {}).get("type")
            return strategy == "OnDelete" or getattr(spec, "pod_management_policy", "") != "Parallel"
        case "DaemonSet":
            return (made.after.get("spec", {}).get("updateStrategy") or {}).get("type") == "OnDelete"
    return False


def _deleting(names: Sequence[str], where: str) -> Iterator[str]:
    """Yield the command that deletes pods; of several, a controller may have deleted some already."""
    if names:
        lenient = " --ignore-not-found" if len(names) > 1 else ""
        yield f"kubectl delete pod {' '.join(map(shlex.quote, names))}{where}{lenient}"


def _plain_pod(template: PodTemplateSpec, made: _Request) -> dict[str, Any]:
    """Return the document of a pod as its controller, or a person, creates it from a template; controllers add labels."""
    labels = {**made.pod.metadata.labels, **template.metadata.labels}
    metadata = replace(template.metadata, labels=labels, namespace=made.subject.namespace)
    found = plain_document(_KINDS[Pod], Pod(metadata=metadata, spec=template.spec))
    kept = {name: found["metadata"][name] for name in ("labels", "annotations", "namespace") if name in found["metadata"]}
    return {**found, "metadata": kept}


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
