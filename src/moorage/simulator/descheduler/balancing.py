"""The balance plugins that count pods: RemoveDuplicates and RemovePodsViolatingTopologySpreadConstraint.

Source  descheduler 0.36, pkg/framework/plugins: removeduplicates, removepodsviolatingtopologyspreadconstraint
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil

from moorage.api.core import Node, Pod
from moorage.simulator.descheduler import removals
from moorage.simulator.descheduler.policy import (
    PluginArgs,
    PluginRun,
)
from moorage.simulator.descheduler.scene import HARD, selects, tolerates_all

#: Namespace, kind and name of an owner, and the images of its pods.
_Owner = tuple[str, str, str, str]


def duplicates(run: PluginRun, args: PluginArgs, nodes: Sequence[Node]) -> None:
    """RemoveDuplicates: pods of one owner beyond an even share of the nodes on which they could be."""
    scene = run.scene
    found: dict[_Owner, dict[str, list[Pod]]] = {}
    occurrences: Counter[_Owner] = Counter()
    for node in nodes:
        seen: set[tuple[str, ...]] = set()
        for pod in scene.running(node.name):
            owners = pod.metadata.owner_references
            if not owners or any(one.kind in args.exclude_owner_kinds for one in owners):
                continue
            if not (removals.includes(args.namespaces, [pod.namespace]) and run.judge.is_evictable(pod)):
                continue
            images = sorted(one.image for one in pod.spec.containers)
            keys = [(pod.namespace, one.kind, one.name, "#".join(images)) for one in owners]
            occurrences.update(keys)
            same = tuple(sorted(f"{pod.namespace}/{one.kind}/{one.name}/{image}" for one in owners for image in images))
            if same in seen:
                for key in keys:
                    found.setdefault(key, {}).setdefault(node.name, []).append(pod)
            seen.add(same)
    for key, by_node in found.items():
        targets = _targets(by_node, nodes)
        if len(targets) < 2:
            continue
        most = ceil(occurrences[key] / len(targets))
        for pods in by_node.values():
            for pod in pods[most - 1 :]:
                if run.evict(pod) == "limited":
                    break


def _targets(by_node: dict[str, list[Pod]], nodes: Sequence[Node]) -> set[str]:
    """Return the nodes on which the duplicates could be; those of a pod that could be on one node alone do not count."""
    distinct = {repr((p.spec.tolerations, p.spec.affinity and p.spec.affinity.node_affinity, p.spec.node_selector)): p
                for pods in by_node.values() for p in pods}  # fmt: skip
    found: set[str] = set()
    for pod in distinct.values():
        match = {node.name for node in nodes if tolerates_all(pod, node.spec.taints, HARD) and selects(pod, node)}
        found |= match if len(match) > 1 else set()
    return found
