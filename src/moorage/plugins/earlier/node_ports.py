"""NodePorts up to 1.32: pods that are only nominated wake no pod.

Source    kube-scheduler 1.32.5, plugins/nodeports/node_ports.go
"""

from __future__ import annotations

from moorage.plugins.earlier.shared.placed_pods import WokenByPlacedPods
from moorage.plugins.node_ports import NodePorts


class NodePortsV132(WokenByPlacedPods, NodePorts):
    reuse = NodePorts.reuse
