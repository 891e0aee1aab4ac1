"""The subresources of stored objects: ``scale`` of workloads and custom kinds, ``binding`` and ``eviction`` of pods.

Schedulers and ``kubectl drain`` depend on the responses, so errors follow kube-apiserver. As in kube-apiserver, a binding's
node need not exist.

Source  kubernetes, pkg/registry/core/pod/storage/storage.go (BindingREST) and eviction.go
"""

from __future__ import annotations

from typing import Any, Final

from moorage.api.decode import decode
from moorage.api.documents import statuses
from moorage.api.documents.records import Record, is_condition_true, timestamp
from moorage.api.documents.served_kinds import Document, Review, ServedKind, as_mapping, served
from moorage.api.meta import LabelSelector
from moorage.api.selectors import compile_label_selector, label_selector_matches
from moorage.api.validation.faults import nonnegative
from moorage.api.validation.rule_tables import field_of
from moorage.api.workloads import PodDisruptionBudget
from moorage.errors import Fault, InputError
from moorage.rules.admission.strategy import decode_document
from moorage.rules.store.deletion import check_preconditions, options_of
from moorage.rules.store.list_selection import Selection
from moorage.rules.store.policy_requests import request_for, unjudged, written
from moorage.rules.store.store import DeletionResult, Store

_PODS: Final = served("pods")


# -- scale -------------------------------------------------------------------------------------------------------------
# The ``scale`` subresource of workloads and of custom kinds.
#
# Source  api, autoscaling/v1; kubernetes, pkg/registry/apps/deployment/storage


def read_scale(kind: ServedKind, document: Document) -> Document:
    """Return the ``Scale`` of a workload or of a custom object.

    Raises  ApiError 500 for a custom object without a replica count
    """
    selector = ""
    if kind.custom is not None and kind.custom.scale is not None:
        paths = kind.custom.scale
        wanted, current, shown = (field_of(document, path.removeprefix(".")) if path else "" for path in paths)
        if wanted is None:
            raise statuses.internal(f"the spec replicas field {statuses.quoted(paths.wanted)} does not exist")
        current, selector = current or 0, shown if isinstance(shown, str) else ""
    else:
        spec, status = document.get("spec") or {}, document.get("status") or {}
        wanted, current, selector = spec.get("replicas", 0), status.get("replicas", 0), _selector(spec.get("selector"))
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: document["metadata"][name] for name in names if name in document["metadata"]},
        "spec": {"replicas": wanted} if wanted else {},
        "status": {"replicas": current, **({"selector": selector} if selector else {})},
    }


def _selector(selector: Any) -> str:
    if not isinstance(selector, dict):
        return ""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        selector = {"matchLabels": selector}
    try:
        return str(compile_label_selector(decode(selector, LabelSelector, "")))
    except InputError:
        return ""


def check_scale(scale: Document, name: str) -> None:
    """Check the scale that a client wants for the object of a name. The metadata of a scale has no effect.

    Raises  ApiError 422
    """
    if faults := [*nonnegative("spec.replicas", (scale.get("spec") or {}).get("replicas"))]:
        raise statuses.invalid("Scale", "autoscaling", name, faults)


def write_scale(kind: ServedKind, document: Document, wanted: Document) -> None:
    """Write the replica count of a valid ``Scale`` into a workload or a custom object.

    Raises  ApiError 500 for a custom object whose count cannot be set
    """
    replicas = (wanted.get("spec") or {}).get("replicas", 0)
    path = ".spec.replicas" if kind.custom is None or kind.custom.scale is None else kind.custom.scale.wanted
    *above, last = path.removeprefix(".").split(".")
    for name in above:
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise statuses.internal(f"value cannot be set because {path} is not a map[string]interface{{}}")
    document[last] = replicas


_BUDGETS: Final = served("poddisruptionbudgets", "policy")


# -- binding -----------------------------------------------------------------------------------------------------------


def bind(
    store: Store, namespace: str, name: str, binding: Document, *, dry_run: bool = False, resource: ServedKind | Review = _PODS
) -> None:  # fmt: skip
    """Assign a pod to the node of a ``Binding``. ``resource``: the one in the path, which is pods or bindings.

    Raises  ApiError 404 if the pod does not exist; 409 if it is terminating, assigned, gated, or fails a precondition; 400
            if the names differ; 500 for a target that is not a node, as in kube-apiserver
    """
    asked = request_for(
        resource, None, binding, "binding" if resource is _PODS else "", name=name, namespace=namespace, dry_run=dry_run
    )
    if store.policies.mutate_request(asked):
        written(asked.object or {}, binding)
    metadata = as_mapping(binding.get("metadata"))
    if metadata.get("name") != name:
        raise statuses.bad_request("name in URL does not match name in Binding object")
    target = as_mapping(binding.get("target"))
    faults = []
    if target.get("kind") not in {None, "", "Node"}:
        faults.append(Fault("Unsupported value", "target.kind", 'supported values: "Node", "<empty>"', target["kind"]))
    if not target.get("name"):
        faults.append(Fault("Required value", "target.name"))
    if texts := [str(fault) for fault in faults]:
        raise statuses.unknown(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    store.policies.check_request(asked)
    record = store.get(_PODS, namespace, name)
    pod = record.document()
    _check_same(record, pod, metadata)
    _check_bindable(pod)
    topology = store.topology_of(str(target["name"])) if target.get("kind") == "Node" else {}
    # Existing labels of the pod stay, and topology labels take precedence over the binding's labels.
    pod["spec"]["nodeName"] = str(target["name"])
    if annotations := as_mapping(metadata.get("annotations")):
        pod["metadata"]["annotations"] = {**(pod["metadata"].get("annotations") or {}), **annotations}
    if labels := {**as_mapping(metadata.get("labels")), **topology}:
        pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), **labels}
    pod["status"].pop("nominatedNodeName", None)
    _set_condition(pod["status"], {"type": "PodScheduled", "status": "True"}, timestamp(store.clock()))
    store.put(_PODS, record, pod, dry_run=dry_run)


def _check_same(record: Record, pod: Document, metadata: Document) -> None:
    stated = (("uid", "UID", pod["metadata"]["uid"]), ("resourceVersion", "ResourceVersion", str(record.version)))
    for field, shown, held in stated:
        wanted = metadata.get(field)
        if wanted and wanted != held:
            why = f"Precondition failed: {shown} in precondition: {wanted}, {shown} in object meta: {held}"
            key = f"/registry/pods/{record.key}"
            why = f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
            raise statuses.conflict("pods", "", record.name, why)


def _check_bindable(pod: Document) -> None:
    name, spec = pod["metadata"]["name"], pod["spec"]
    why = ""
    if pod["metadata"].get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise statuses.conflict("pods/binding", "", name, why)


def _set_condition(status: Document, condition: Document, now: str, *, probed: bool = True) -> None:
    """Set a condition. Its transition time changes only if its status does."""
    conditions: list[Document] = status.setdefault("conditions", [])
    condition = {**condition, "lastProbeTime": None} if probed else condition
    for i, held in enumerate(conditions):
        if held.get("type") == condition["type"]:
            same = held.get("status") == condition["status"]
            since = held.get("lastTransitionTime", now) if same else now
            conditions[i] = {**condition, "lastTransitionTime": since}
            return
    conditions.append({**condition, "lastTransitionTime": now})


# -- eviction ----------------------------------------------------------------------------------------------------------

_DENIED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_RETRY_S: Final = 10
_MAX_DISRUPTED: Final = 2000


def evict(store: Store, namespace: str, name: str, eviction: Document, *, dry_run: bool = False) -> DeletionResult:
    """Delete a pod if its disruption budget allows it, and decrement the budget.

    Raises  ApiError 404; 400 if the names differ; 403 for an invalid budget status; 429 if the budget allows no disruption
            or is not up to date; 500 for a pod with several budgets
    """
    asked = request_for(_PODS, None, eviction, "eviction", name=name, namespace=namespace, dry_run=dry_run)
    if store.policies.mutate_request(asked):
        written(asked.object or {}, eviction)
    if as_mapping(eviction.get("metadata")).get("name") != name:
        raise statuses.bad_request("name in URL does not match name in Eviction object")
    store.policies.check_request(asked)
    record = store.get(_PODS, namespace, name)
    options = options_of(eviction.get("deleteOptions"))
    dry_run = dry_run or options.dry_run
    pod = record.document()
    status = as_mapping(pod.get("status"))
    is_exempt = status.get("phase") in {"Pending", "Succeeded", "Failed"} or pod["metadata"].get("deletionTimestamp")
    budget = None if is_exempt else _budget_of(store, namespace, record)
    held = budget.document() if budget is not None else None
    if held is not None and (is_condition_true(status, "Ready") or not _ignores_unhealthy(held)):
        _check_budget(held)
    else:
        held = None
    check_preconditions(_PODS, pod["metadata"], options)
    if not dry_run:
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        condition["message"] = "Eviction API: evicting"
        _set_condition(pod.setdefault("status", {}), condition, timestamp(store.clock()))
        record = store.put(_PODS, record, pod)
        options = options._replace(version="")
    with unjudged():  # an eviction is no deletion for policies
        deleted = store.delete(_PODS, namespace, name, options, dry_run=dry_run)
    if budget is not None and held is not None and not dry_run:
        store.put(_BUDGETS, budget, _decremented(held, name, timestamp(store.clock())))
    return deleted


def _budget_of(store: Store, namespace: str, pod: Record) -> Record | None:
    covering = [record for record in store.all(_BUDGETS, Selection(namespace)) if _covers(record, pod)]
    if len(covering) > 1:
        why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise statuses.unknown(why)
    return covering[0] if covering else None


def _covers(budget: Record, pod: Record) -> bool:
    found = decode_document(_BUDGETS, budget.document())
    selector: LabelSelector | None = found.spec.selector if isinstance(found, PodDisruptionBudget) else None
    return label_selector_matches(selector, pod.labels)


def _check_budget(budget: Document) -> None:
    name, status = budget["metadata"]["name"], as_mapping(budget.get("status"))
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _denied(f"The disruption budget {name} is still being processed by the server.", _RETRY_S)
    allowed = int(status.get("disruptionsAllowed", 0))
    if allowed < 0:
        raise statuses.forbidden("poddisruptionbudget", "policy", name, "pdb disruptions allowed is negative")
    if len(as_mapping(status.get("disruptedPods"))) > _MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise statuses.forbidden("poddisruptionbudget", "policy", name, why)
    if allowed == 0:
        raise _denied(_no_room(name, status))


def _no_room(name: str, status: Document) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionAllowed" and condition.get("reason") == "SyncFailed":
            why = condition.get("message", "")
            return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {why}"
    needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    return f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"


def _ignores_unhealthy(budget: Document) -> bool:
    """Return True if the budget allows evicting pods that are not ready without counting it as a disruption."""
    status = as_mapping(budget.get("status"))
    if as_mapping(budget.get("spec")).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    return int(status.get("currentHealthy", 0)) >= int(status.get("desiredHealthy", 0)) > 0


def _denied(message: str, retry_after_s: int = 0) -> statuses.ApiError:
    return statuses.too_many(_DENIED, retry_after_s, [statuses.Cause("DisruptionBudget", message)])


def _decremented(budget: Document, pod: str, now: str) -> Document:
    """Return the budget with one allowed disruption less."""
    status = budget["status"]
    status["disruptionsAllowed"] = int(status["disruptionsAllowed"]) - 1
    status["disruptedPods"] = {**as_mapping(status.get("disruptedPods")), pod: now}
    if not status["disruptionsAllowed"]:
        condition = {"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": ""}
        condition["observedGeneration"] = status.get("observedGeneration", 0)
        _set_condition(status, condition, now, probed=False)
    return budget
