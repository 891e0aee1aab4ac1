"""A cluster in virtual time: a store, controllers, and a scheduler that takes the nodes in turn."""

import json
import random

import pytest
import yaml

from moorage.api.documents.served_kinds import KINDS
from moorage.api.documents.statuses import ApiError
from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import TODAY
from moorage.cluster.controllers.manager import ControllerManager
from moorage.cluster.controllers.nodes.kubelets import Kubelets
from moorage.rules.store.store import Store
from moorage.rules.store.subresources import bind, options_of

START = 1_750_000_000.0
_KINDS = {kind.resource: kind for kind in reversed(KINDS)}
_BY_KIND = {(kind.api_version, kind.kind): kind for kind in KINDS}


class Lab:
    """``apply`` objects, ``advance`` the time, and look at what came of it."""

    def __init__(self, *controllers, nodes=3, seed=7, gates="", release=TODAY):
        self.now = START
        self.store = Store(lambda: self.now, random.Random(seed), b"k", gates=FeatureGates.parse(gates, release))
        self.reports = []
        self.manager = ControllerManager(self.store, [Kubelets(), *controllers], self.reports.append)
        self.schedules = True
        self._turn = 0
        for i in range(1, nodes + 1):
            self.add_node(f"n{i}")
        self.settle()

    def restart(self, *controllers):
        """Put new controllers in the place of the old ones, as a process that starts again would."""
        self.manager.close()
        self.manager = ControllerManager(self.store, [Kubelets(), *controllers], self.reports.append)

    def add_node(self, name, **metadata):
        amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        status = {"capacity": amounts, "allocatable": amounts}
        self.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}, "status": status})

    def apply(self, what, namespace="default"):
        """Create objects, or replace what there is of them, given as documents or YAML."""
        for document in list(yaml.safe_load_all(what)) if isinstance(what, str) else [json.loads(json.dumps(what))]:
            kind = _BY_KIND[document["apiVersion"], document["kind"]]
            home = document["metadata"].get("namespace", namespace) if kind.namespaced else ""
            name = document["metadata"].get("name")
            if name and self.store.find(kind, home, name):
                self.store.update(kind, home, name, document)
            else:
                self.store.create(kind, home, document)

    def kind(self, resource):
        return _KINDS[resource]

    def get(self, resource, name, namespace="default"):
        """Return an object, or None."""
        kind = self.kind(resource)
        record = self.store.find(kind, namespace if kind.namespaced else "", name)
        return record and record.document()

    def all(self, resource, **labels):
        found = [record.document() for record in self.store.all(self.kind(resource))]
        return [one for one in found if labels.items() <= (one["metadata"].get("labels") or {}).items()]

    def names(self, resource, **labels):
        return [one["metadata"]["name"] for one in self.all(resource, **labels)]

    def edit(self, resource, name, change, namespace="default", subresource=""):
        kind = self.kind(resource)

        def edited(document):
            change(document)

        self.store.change(kind, namespace if kind.namespaced else "", name, edited, subresource=subresource)

    def patch(self, resource, name, **spec):
        self.edit(resource, name, lambda document: document["spec"].update(spec))

    def delete(self, resource, name, namespace="default", **options):
        kind = self.kind(resource)
        self.store.delete(kind, namespace if kind.namespaced else "", name, options_of(options))

    def settle(self, limit=20_000):
        """Do all that is due now."""
        for _ in range(limit):
            if not self.manager.step() and not self._schedule():
                return
        raise AssertionError(f"it never settles: {self.manager.looks} {self.reports[-3:]}")

    def advance(self, seconds):
        """Let time pass, and do what comes due when it is."""
        end = self.now + seconds
        self.settle()
        while (due := self.manager.next_time()) is not None and due <= end:
            self.now = max(self.now, due)
            self.settle()
        self.now = end
        self.settle()

    def _schedule(self):
        nodes = [one["metadata"]["name"] for one in self.all("nodes") if not one.get("spec", {}).get("unschedulable")]
        waiting = [pod for pod in self.all("pods") if not pod["spec"].get("nodeName") and nodes and self.schedules]
        return sum(self._place(pod, nodes) for pod in waiting) > 0

    def _place(self, pod, nodes):
        name, self._turn = nodes[self._turn % len(nodes)], self._turn + 1
        metadata = {"name": pod["metadata"]["name"]}
        try:
            body = {"metadata": metadata, "target": {"kind": "Node", "name": _only(pod) or name}}
            bind(self.store, pod["metadata"]["namespace"], metadata["name"], body)
        except ApiError:
            return False
        return True

    def counts(self, resource, name):
        """Return the numbers of an object's status."""
        return {key: value for key, value in self.get(resource, name)["status"].items() if isinstance(value, int)}

    def condition(self, resource, name, which):
        for one in self.get(resource, name).get("status", {}).get("conditions", ()):
            if one["type"] == which:
                return one["status"], one.get("reason")
        return None


def _only(pod):
    """Return the one node that a daemon's pod is for."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or [{}]
    fields = terms[0].get("matchFields")
    return fields[0]["values"][0] if fields else ""


@pytest.fixture
def lab():
    return Lab


@pytest.fixture(scope="session")
def lab_class():
    return Lab
