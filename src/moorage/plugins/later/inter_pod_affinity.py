"""InterPodAffinity of 1.37: the terms of an incoming pod select the namespaces that their selectors match, and no others.

Source    kube-scheduler 1.37, plugins/interpodaffinity/plugin.go
"""

from __future__ import annotations

from moorage.plugins.affinity.selected_namespaces import SelectingNamespaces


class InterPodAffinityV137(SelectingNamespaces):
    pass
