"""Test that pods which a node plugin may treat differently have different signatures, and copies equal ones."""

from __future__ import annotations

import pytest

from moorage.plugins.image_locality import ImageLocality
from moorage.plugins.node_affinity import NodeAffinity
from moorage.plugins.node_declared_features import NodeDeclaredFeatures
from moorage.plugins.node_name import NodeName
from moorage.plugins.node_ports import NodePorts
from moorage.plugins.node_unschedulable import NodeUnschedulable
from moorage.plugins.taint_toleration import TaintToleration
from moorage.testing.builders import a_pod

PREFERS_SSD = {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}
AFFINITY = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [PREFERS_SSD]}}

READ = {  # plugin, a spec that it treats differently from an empty one
    "NodeName": (NodeName(), {"nodeName": "n1"}),
    "NodeUnschedulable": (NodeUnschedulable(), {"tolerations": [{"operator": "Exists"}]}),
    "TaintToleration": (TaintToleration(), {"tolerations": [{"operator": "Exists"}]}),
    "NodeAffinity, labels": (NodeAffinity(), {"nodeSelector": {"disk": "ssd"}}),
    "NodeAffinity, preferences": (NodeAffinity(), {"affinity": AFFINITY}),
    "NodePorts": (NodePorts(), {"containers": [{"ports": [{"hostPort": 80, "containerPort": 80}]}]}),
    "NodeDeclaredFeatures": (NodeDeclaredFeatures(), {"hostNetwork": True, "hostUsers": False}),
    "ImageLocality": (ImageLocality(), {"containers": [{"image": "web"}]}),
    "ImageLocality, volumes": (ImageLocality(), {"volumes": [{"name": "v", "image": {"reference": "web"}}]}),
}


@pytest.mark.parametrize(("plugin", "spec"), READ.values(), ids=READ)
def test_the_signature_covers_what_the_plugin_reads(plugin, spec):
    assert plugin.reuse.signature(a_pod(**spec)) != plugin.reuse.signature(a_pod())
    assert plugin.reuse.signature(a_pod("copy", **spec)) == plugin.reuse.signature(a_pod("original", **spec))
    assert {hash(value) for value in plugin.reuse.signature(a_pod(**spec)).values()}


def test_the_signature_counts_repeated_images():
    once, twice = ([{"image": "web"}] * n for n in (1, 2))
    assert ImageLocality().reuse.signature(a_pod(containers=once)) != ImageLocality().reuse.signature(a_pod(containers=twice))


def test_the_signature_ignores_the_order_of_a_node_selector():
    one, other = {"a": "1", "b": "2"}, {"b": "2", "a": "1"}
    assert NodeAffinity().reuse.signature(a_pod(nodeSelector=one)) == NodeAffinity().reuse.signature(a_pod(nodeSelector=other))
