"""TopologyPlacementGenerator: restrict a pod group to nodes that share the value of a label.

Reads     the PodGroup's schedulingConstraints.topology; labels of nodes; the nodes of the group's scheduled pods
Proposes  one placement for each value of the label; if pods of the group have nodes, only their value; all nodes if the group
          has no constraint
Source    kube-scheduler 1.36, plugins/topologyaware/topology_placement.go

The feature gate TopologyAwareWorkloadScheduling enables the plugin. Nodes without the label are in no placement. Placements are
sorted by value; kube-scheduler's have no order.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from moorage.api.pod_groups import PodGroup
from moorage.errors import AttemptError
from moorage.framework.placements import GroupInfo, Placement
from moorage.framework.points import PlacementGeneratePlugin
from moorage.state.cluster import Snapshot

# kube-scheduler's own texts, kept word for word.
_UNCLEAR: Final = "cannot determine domain for already scheduled pods: {}"


class TopologyPlacementGenerator(PlacementGeneratePlugin):
    name = "TopologyPlacementGenerator"

    def generate_placements(self, group: GroupInfo, everywhere: Placement, snapshot: Snapshot) -> list[Placement]:
        known = snapshot.objects(PodGroup).get(group.key) if group.tree is None else group.tree.group
        if known is None:
            raise AttemptError(self.name, f'podgroup.scheduling.k8s.io "{group.name}" not found')
        if not known.topology_keys:
            return [everywhere]
        key = known.topology_keys[0]  # the API allows one key
        required = self._domain_in_use(group, key, snapshot)
        column, nodes = snapshot.table.labels.column(key), everywhere.nodes
        ids = nodes.take(column.ids)
        placements = []
        for value, number in sorted((str(column.values[number]), number) for number in np.unique(ids).tolist() if number):
            if required is None or value == required:
                placements.append(Placement(value, nodes.only(ids == number)))
        return placements

    def _domain_in_use(self, group: GroupInfo, key: str, snapshot: Snapshot) -> str | None:
        """Return the domain of the group's scheduled pods; None if none has a node.

        Raises  AttemptError if the domain is unknown or not unique
        """
        of_each = [snapshot.group(group.key)] if group.tree is None else [*group.tree.pods(snapshot)]
        domain: str | None = None
        placed = ((known.pod(uid), uid, name) for known in of_each if known is not None for uid, name in known.nodes.items())
        for pod, uid, name in placed:
            node = snapshot.node(name)
            called = pod.key if pod is not None else uid
            if node is None:
                missing = f'getting node for pod {called}: nodeinfo not found for node name "{name}"'
                raise AttemptError(self.name, _UNCLEAR.format(missing))
            if key not in node.labels:
                raise AttemptError(self.name, _UNCLEAR.format(f"no topology domain found for pod {called}"))
            if domain and domain != node.labels[key]:
                both = f"more than 1 domain found for pod group: {domain}, {node.labels[key]}"
                raise AttemptError(self.name, _UNCLEAR.format(both))
            domain = node.labels[key]
        return domain
