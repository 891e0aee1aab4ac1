"""The table of kinds: one row makes a kind known to simulations, schedulers and the embedded server."""

from __future__ import annotations

import subprocess
import sys

import pytest

from moorage.api import kinds
from moorage.api.kinds import KIND_OF_TYPE, KINDS, Kind, Reader, find_kind
from moorage.api.meta import Object
from moorage.basis.client.watched_resources import WATCHED
from moorage.framework.events import Resource
from moorage.simulator.cluster_input import SLOTS

NEW_KIND = """
from moorage.api import kinds
from moorage.api.meta import Object

class Gadget(Object):
    size: int = 0

kinds.KINDS = (*kinds.KINDS, kinds.Kind("example.com", "Gadget", "gadgets", Gadget, readers=kinds.Reader.BOTH, gate=""))

import moorage
from moorage.api.documents.served_kinds import find_kind
from moorage.basis.client.watched_resources import WATCHED

served = find_kind("gadgets", "example.com")
assert (served.kind, served.struct, served.api_version) == ("Gadget", Gadget, "example.com/v1")
assert [one.path for one in WATCHED if one.type is Gadget] == ["/apis/example.com/v1/gadgets"]

from moorage.simulator.cluster_run import objects_of
cluster = moorage.read([PATH])
assert [one.size for one in cluster.others] == [3], cluster
assert cluster.others[0] in list(objects_of(cluster))
assert cluster.report.read == (("Gadget", 1),), cluster.report
"""


@pytest.mark.slow
def test_a_new_kind_is_one_row(tmp_path):
    path = tmp_path / "gadget.yaml"
    path.write_text("{apiVersion: example.com/v1, kind: Gadget, metadata: {name: g, namespace: default}, size: 3}")
    done = subprocess.run(
        [sys.executable, "-c", NEW_KIND.replace("PATH", repr(str(path)))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_kind_is_there_once():
    assert (
        len({(kind.group, kind.name) for kind in KINDS}) == len({(kind.group, kind.resource) for kind in KINDS}) == len(KINDS)
    )
    assert all(KIND_OF_TYPE[kind.type] is kind for kind in KINDS if kind.type is not Object)
    assert all(kind.type is not Object for kind in KINDS if kind.readers)
    assert {kind.slot for kind in KINDS if Reader.SIMULATION in kind.readers} == SLOTS


def test_what_plugins_wake_on_is_watched():
    special = {Resource.ANY, Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD}
    assert {one.rpartition("/")[2] for one in Resource if one not in special} <= {one.kind for one in WATCHED}


@pytest.mark.parametrize(
    ("name", "slot"),
    [("Pod", "pods"), ("CSINode", "csi_nodes"), ("PriorityClass", "priority_classes"),
     ("CSIStorageCapacity", "csi_storage_capacities"), ("Ingress", "ingresses")],
)  # fmt: skip
def test_attribute_names(name, slot):
    assert Kind("", name, "x").slot == slot


def test_a_kind_that_is_not_there():
    assert find_kind("Job", "batch") in kinds.KINDS
    with pytest.raises(LookupError, match=r"Job\.apps"):
        find_kind("Job", "apps")
