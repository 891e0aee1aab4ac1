"""Corrections of what a pod names and the cluster does not have: labels, resources, claims, classes, and labels of other pods.

A correction is offered only where one name is clearly closer than all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from functools import cache, cached_property
from typing import Final

import msgspec
from msgspec.structs import replace

from moorage.api.admission import SYSTEM_PRIORITY_CLASSES
from moorage.api.core import Namespace, Node, NodeSelectorRequirement, Pod, PodAffinityTerm, PodSpec, Taint
from moorage.api.devices import DeviceClass, ResourceClaim
from moorage.api.meta import LabelSelector, LabelSelectorRequirement
from moorage.api.node_selectors import required_nodes
from moorage.api.selectors import compile_label_selector
from moorage.api.storage import PersistentVolumeClaim, StorageClass
from moorage.api.workloads import PriorityClass
from moorage.framework.changes import Change, term_text
from moorage.laboratory.surroundings import Surroundings
from moorage.rules.volumes.bindings import class_of_claim
from moorage.rules.workloads.missing_pods import POD_TEMPLATE_HASH

#: The least similarity of two names, and how much more similar the closest name must be than the next one.
_CLOSE: Final = 0.6
_CLEAR: Final = 0.04
#: How much more similar two names are that begin alike.
_BEGIN: Final = 0.05
_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
#: Plugins that refuse a pod whose claims do not exist.
_VOLUMES: Final = frozenset(["VolumeRestrictions", "VolumeBinding", "NodeVolumeLimits", "VolumeZone"])
#: A number of cores that is more likely meant in thousandths, if no node has as many.
_MANY_CORES: Final = 64
#: Changes for which a correction may serve instead.
CORRECTED: Final = frozenset([
    "drop-selector", "drop-expression", "prefer", "schedule-anyway", "request", "priority", "disable-plugin", "volume",
])  # fmt: skip
#: Values that are right although no node has them, by the last part of the label.
_FACTS: Final = {
    "arch": {"amd64", "arm64", "arm", "386", "ppc64le", "s390x", "riscv64"}, "os": {"linux", "windows"},
}  # fmt: skip
#: What else people call these values.
_ALSO: Final = {"x86_64": "amd64", "x64": "amd64", "x86-64": "amd64", "aarch64": "arm64"}
_NAME: Final = "kubernetes.io/metadata.name"


def closest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that is clearly the closest to a name that is not known; None if there is none."""
    if name in known:
        return None
    likeness = {one: SequenceMatcher(None, name, one).ratio() + _BEGIN * (one[:1] == name[:1]) for one in known}
    ranked = sorted(((like, one) for one, like in likeness.items()), reverse=True)[:2]
    if not ranked or ranked[0][0] < _CLOSE or (len(ranked) > 1 and ranked[0][0] - ranked[1][0] < _CLEAR):
        return None
    return ranked[0][1]


def required_labels(spec: PodSpec) -> list[tuple[str, str]]:
    """Return the labels, with their values, of which a pod requires its node to have some."""
    labels, required = list(spec.node_selector.items()), required_nodes(spec)
    for term in required.node_selector_terms if required is not None else ():
        for one in term.match_expressions:  # most terms have none: a DaemonSet's name their node
            labels += ((one.key, value) for value in one.values if one.operator == "In")
    return labels


class Corrections:
    """Corrections of one pod."""

    def __init__(self, pod: Pod, nodes: Mapping[str, Node], pods: Mapping[str, Pod], around: Surroundings) -> None:
        self._pod = pod
        self._target = f"pod/{pod.key}"
        self._nodes = nodes.values()
        self._pods = pods.values()
        self._around = around
        self.of_label = cache(self._of_label)

    def instead_of(self, change: Change, node: Node | None) -> Iterator[Change]:
        """Yield the corrections that may serve instead of a change, on a node that is as they say."""
        match change.verb:
            case "drop-selector" if node is not None:
                key = change.path.removeprefix("nodeSelector.")
                found = self.of_label(key, str(change.old))
                if found is not None and node.labels.get(found[0]) == found[1]:
                    yield self._correct("nodeSelector", f"{key}={change.old}", "=".join(found))
            case "drop-expression" if node is not None:
                yield from self._expression(change, node)
            case "prefer":
                yield from self._neighbour(change)
            case "schedule-anyway":
                yield from self._spread(change)
            case "request":
                yield from self._resource(change, node)
            case "priority":
                yield from self._priority_class(change)
            case "disable-plugin" if change.target.endswith("/DynamicResources"):
                yield from self._devices()
            case "disable-plugin" if change.target.endswith(
                ("/VolumeRestrictions", "/VolumeBinding", "/NodeVolumeLimits", "/VolumeZone")
            ):
                yield from self._claims()
            case "volume":
                yield from self._classes(change.target.removeprefix("persistentvolumeclaim/"))

    def _correct(self, path: str, old: str, new: str) -> Change:
        return Change("pod", "correct", self._target, path, old, new)

    # -- labels of nodes --------------------------------------------------------------------------------------------------

    def _of_label(self, key: str, value: str) -> tuple[str, str] | None:
        """Return the label that is meant by one that no node has."""
        held = Counter(node.labels[key] for node in self._nodes if key in node.labels)
        if held:
            is_right = value in held or value in _FACTS.get(key.rpartition("/")[2], ())
            found = None if is_right else _ALSO[value] if _ALSO.get(value) in held else closest(value, held)
            return None if found is None else (key, found)
        meant = self._key(key)
        values = {node.labels[meant] for node in self._nodes if meant in node.labels} if meant is not None else set()
        found = value if value in values else closest(value, values)
        return None if meant is None or found is None else (meant, found)

    def _expression(self, change: Change, node: Node) -> Iterator[Change]:
        asked = msgspec.json.decode(str(change.old), type=NodeSelectorRequirement)
        if asked.operator != "In" or any(one.labels.get(asked.key) in asked.values for one in self._nodes):
            return
        for value in asked.values:
            found = self.of_label(asked.key, value)
            if found is not None and node.labels.get(found[0]) == found[1]:
                yield self._correct(change.path, str(change.old), term_text(replace(asked, key=found[0], values=(found[1],))))

    def is_almost_tolerated(self, taint: Taint) -> bool:
        """Return whether a toleration of the pod differs from a taint by its effect, its value or a typing error."""
        keys = {one.key for one in self._pod.spec.tolerations if one.key and not one.key.startswith("node.kubernetes.io/")}
        return taint.key in keys or any(closest(key, [taint.key]) is not None for key in keys)

    # -- resources --------------------------------------------------------------------------------------------------------

    def _resource(self, change: Change, node: Node | None) -> Iterator[Change]:
        name = change.path.removeprefix("requests.")
        if name == "cpu" and isinstance(change.old, int) and isinstance(change.new, int) and change.old % 1000 == 0:
            cores = change.old // 1000
            if cores >= _MANY_CORES and cores <= change.new:
                yield self._correct("units.cpu", str(cores), f"{cores}m")
        offered = {known for one in self._nodes for known in one.status.allocatable if "/" in known}
        found = closest(name, offered) if "/" in name or "-" in name else None
        if found is not None and node is not None and found in node.status.allocatable:
            yield self._correct("resources", name, found)

    # -- other pods -------------------------------------------------------------------------------------------------------

    def _neighbour(self, change: Change) -> Iterator[Change]:
        """Yield an affinity term that selects pods, instead of one that selects none by a typing error."""
        term = msgspec.json.decode(str(change.old), type=PodAffinityTerm)
        meant = self._key(term.topology_key)
        if meant is not None:
            yield self._correct(change.path, str(change.old), term_text(replace(term, topology_key=meant)))
        if change.path != "affinity.podAffinity" or term.label_selector is None:
            return
        spaces = self._selected(term)
        others = [one for one in self._pods if one.key != self._pod.key]
        selector = compile_label_selector(term.label_selector)
        found = {one.namespace for one in others if selector.matches(one.metadata.labels)}
        if found and found.isdisjoint(spaces):
            yield from self._space(change, term, found)
        elif not found and (
            corrected := _corrected(term.label_selector, [one.metadata.labels for one in others if one.namespace in spaces])
        ):
            yield self._correct(change.path, str(change.old), term_text(replace(term, label_selector=corrected)))

    @cached_property
    def _spaces(self) -> dict[str, Mapping[str, str]]:
        """Labels of the namespaces."""
        return {one.metadata.name: one.metadata.labels for one in self._around.all_of(Namespace)}

    def _selected(self, term: PodAffinityTerm) -> set[str]:
        """Return the namespaces in which an affinity term selects pods."""
        if term.namespace_selector is None:
            return set(term.namespaces or (self._pod.namespace,))
        selector = compile_label_selector(term.namespace_selector)
        return {*term.namespaces, *(name for name, labels in self._spaces.items() if selector.matches(labels))}

    def _space(self, change: Change, term: PodAffinityTerm, found: Collection[str]) -> Iterator[Change]:
        """Yield how an affinity term comes to select the pods that it means, which are in other namespaces: ``found``."""
        meant, wanted = None, term.namespace_selector
        only = next(iter(found)) if len(found) == 1 else None
        if wanted is not None:
            # The name is a label of every namespace: it is meant only where the selector has it.
            own = [dict(self._spaces[name]) for name in found if name in self._spaces]
            for labels in own if _NAME not in wanted.match_labels else ():
                labels.pop(_NAME, None)
            fixed = _corrected(wanted, own)
            meant = None if fixed is None else replace(term, namespace_selector=fixed)
            if meant is None and only in self._spaces and not wanted.match_expressions:
                has = self._spaces[only]
                lacking = {key: value for key, value in wanted.match_labels.items() if has.get(key) != value}
                for key, value in lacking.items() if len(lacking) == 1 else ():
                    yield Change("cluster", "label", f"namespace/{only}", f"labels.{key}", has.get(key), value)
        elif not term.namespaces:
            meant = None if only is None else replace(term, namespaces=(only,))
        else:
            likely = (closest(name, found) for name in term.namespaces)
            meant = next((replace(term, namespaces=(one,)) for one in likely if one is not None), None)
        if meant is not None:
            yield self._correct(change.path, str(change.old), term_text(meant))

    def _key(self, key: str) -> str | None:
        """Return the label that is meant by one that no node has: its own part is close, too."""
        own = key.rpartition("/")[2]
        known = {one for node in self._nodes for one in node.labels}
        alike = {one for one in known if (part := one.rpartition("/")[2]) == own or closest(own, [part]) is not None}
        return None if key in known else closest(key, alike)

    def _spread(self, change: Change) -> Iterator[Change]:
        path = change.path.removesuffix(".whenUnsatisfiable")
        if change.owner != "pod":
            return
        held = self._pod.spec.topology_spread_constraints[int(path.partition("[")[2].rstrip("]"))]
        meant = self._key(held.topology_key)
        if meant is not None:
            yield self._correct(f"{path}.topologyKey", held.topology_key, meant)
        mine = self._pod.metadata.labels.get(POD_TEMPLATE_HASH)
        if mine is not None and POD_TEMPLATE_HASH not in held.match_label_keys:
            selector = compile_label_selector(held.label_selector)
            if any(
                one.metadata.labels.get(POD_TEMPLATE_HASH, mine) != mine and selector.matches(one.metadata.labels)
                for one in self._pods if one.namespace == self._pod.namespace
            ):  # fmt: skip
                yield Change("pod", "match-label-keys", self._target, f"{path}.matchLabelKeys", None, POD_TEMPLATE_HASH)

    # -- priority and devices ---------------------------------------------------------------------------------------------

    def _priority_class(self, change: Change) -> Iterator[Change]:
        """Yield a priority class that gives enough priority, instead of one that does not exist."""
        values = {one.metadata.name: one.value for one in self._around.all_of(PriorityClass) if isinstance(one, PriorityClass)}
        name = self._pod.spec.priority_class_name
        found = closest(name, values) if name and name not in SYSTEM_PRIORITY_CLASSES else None
        if found is not None and isinstance(change.new, int) and values[found] >= change.new:
            yield self._correct("priorityClassName", name, f"{found}={values[found]}")

    def _devices(self) -> Iterator[Change]:
        """Yield a change for each claim for devices that does not exist, or whose class does not."""
        space = self._pod.namespace
        claims = {one.metadata.name for one in self._around.all_of(ResourceClaim) if one.metadata.namespace == space}
        classes = {one.metadata.name for one in self._around.all_of(DeviceClass)}
        made = {one.name: one.resource_claim_name for one in self._pod.status.resource_claim_statuses}
        for asked in self._pod.spec.resource_claims:
            name = asked.resource_claim_name or made.get(asked.name) or ""
            claim = self._around.find(ResourceClaim, space, name)
            if isinstance(claim, ResourceClaim):
                for old in _device_classes(claim):
                    meant = closest(old, classes)
                    if meant is not None:
                        yield Change("cluster", "correct", f"resourceclaim/{claim.key}", "deviceClassName", old, meant)
            elif name and (meant := closest(name, claims)) is not None:
                yield self._correct(f"resourceClaims.{asked.name}", name, meant)

    # -- claims -----------------------------------------------------------------------------------------------------------

    def _claims(self) -> Iterator[Change]:
        """Yield a change for each claim that the pod names and that does not exist."""
        space = self._pod.namespace
        held = ((one.name, one.persistent_volume_claim) for one in self._pod.spec.volumes)
        used = {volume: source.claim_name for volume, source in held if source is not None}
        names = set(used.values())
        for volume, name in used.items():
            if self._around.find(PersistentVolumeClaim, space, name) is not None:
                continue
            known = {
                one.metadata.name for one in self._around.all_of(PersistentVolumeClaim) if one.metadata.namespace == space
            } - names  # fmt: skip
            meant = closest(name, known)
            if meant is not None:
                yield self._correct(f"volumes.{volume}", name, meant)
            yield Change("cluster", "create", f"persistentvolumeclaim/{space}/{name}", "", None, self._class("") or "")
        for name in names:
            yield from self._classes(f"{space}/{name}")

    def _classes(self, key: str) -> Iterator[Change]:
        """Yield a change of an unbound claim whose class does not exist."""
        space, _, name = key.partition("/")
        claim = self._around.find(PersistentVolumeClaim, space, name)
        if not isinstance(claim, PersistentVolumeClaim) or claim.spec.volume_name:
            return
        old = class_of_claim(claim)
        meant = self._class(old) if old != "" or claim.spec.storage_class_name is None else None
        if meant is not None and meant != old:
            yield Change("cluster", "correct", f"persistentvolumeclaim/{key}", "storageClassName", old, meant)

    def _class(self, name: str) -> str | None:
        """Return the class that is meant by the name of one that does not exist; the default one if none is close."""
        known = {one.metadata.name: one.metadata.annotations for one in self._around.all_of(StorageClass)}
        if name in known:
            return None
        default = next((one for one, notes in known.items() if notes.get(_DEFAULT) == "true"), None)
        only = next(iter(known)) if len(known) == 1 else None
        return closest(name, known) or default or only


def _device_classes(claim: ResourceClaim) -> Iterator[str]:
    for request in claim.spec.devices.requests:
        yield from (one.device_class_name for one in (request.exactly, *request.first_available) if one is not None)


def _corrected(selector: LabelSelector, labels: Iterable[Mapping[str, str]]) -> LabelSelector | None:
    """Return a selector with the label values that some pods have and that are closest; None if that needs no typing error."""
    held_by = list(labels)
    meant: dict[str, str] = {}
    for key, value in selector.match_labels.items():
        values = {one[key] for one in held_by if key in one}
        name, found = key, value if value in values else closest(value, values)
        if found is None and not values:  # pods have the label under another key
            every = {held for one in held_by for held in one.values()}
            found = value if value in every else closest(value, every)
            keys = {other for one in held_by for other, label in one.items() if label == found}
            name = min(keys, default=key)
            found = found if len(keys) == 1 and name not in selector.match_labels else None
        if found is None:
            return None
        meant[name] = found
    expressions: list[LabelSelectorRequirement] = []
    for one in selector.match_expressions:
        values = {some[one.key] for some in held_by if one.key in some}
        if one.operator == "In" and not values.intersection(one.values):
            found = closest(one.values[0], values)
            if found is None:
                return None
            expressions.append(replace(one, values=(found,)))
        else:
            expressions.append(one)
    changed = replace(selector, match_labels=meant, match_expressions=tuple(expressions))
    return None if changed == selector or not any(map(compile_label_selector(changed).matches, held_by)) else changed
