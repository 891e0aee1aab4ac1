"""A created object is decoded once, and again only if admission changed it after its plugins had read it."""

import contextlib
import random
import time
from collections import Counter

import pytest

from moorage.api.documents.served_kinds import KINDS
from moorage.api.documents.statuses import ApiError
from moorage.rules.admission import strategy
from moorage.rules.store.store import Store
from tools.attacks.objects import valid_object

CREATABLE = [kind for kind in KINDS if "create" in kind.verbs]
#: Kinds whose new objects are changed after admission (a finalizer, what a closed gate drops), or are checked in another form.
TWICE = {"CompositePodGroup", "Namespace", "Node", "Workload"}
#: Kinds that are read once more in the form in which they are checked.
THRICE = {"PodGroup"}
POLICY = {
    "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "p"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        },
        "reinvocationPolicy": "Never",
        "mutations": [{
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {"expression": 'Object{metadata: Object.metadata{labels: {"a": "b"}}}'},
        }],
    },
}  # fmt: skip


def made(store, kind, name="x"):
    namespace = "default" if kind.namespaced else ""
    return store.create(kind, namespace, valid_object(kind, namespace, name)).document()


@pytest.fixture
def counted(monkeypatch):
    """Count what is decoded, and check that what validation reads is the document."""
    counts = Counter()
    decode, complete = strategy.decode, strategy.Admitted.complete

    def counting(document, struct, where):
        counts[struct.__name__] += 1
        return decode(document, struct, where)

    def checking(self, document):
        read = complete(self, document)
        struct = self._kind.struct or strategy.Object
        assert read == decode(document, struct, "")
        return read

    monkeypatch.setattr(strategy, "decode", counting)
    monkeypatch.setattr(strategy.Admitted, "complete", checking)
    return counts


@pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: f"{kind.group}/{kind.version}/{kind.kind}")
def test_an_object_is_decoded_once(counted, kind):
    store = Store(time.time, random.Random(5), b"k")
    counted.clear()
    with contextlib.suppress(ApiError):  # for kinds whose object must name others
        made(store, kind)
    decoded = counted[(kind.struct or strategy.Object).__name__]
    assert decoded <= (3 if kind.kind in THRICE else 2 if kind.kind in TWICE else 1)


def test_a_pod_that_a_policy_changes_is_decoded_again(counted):
    store = Store(time.time, random.Random(5), b"k")
    kinds = {kind.kind: kind for kind in CREATABLE}
    store.create(kinds["MutatingAdmissionPolicy"], "", POLICY)
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p"}}
    store.create(kinds["MutatingAdmissionPolicyBinding"], "", binding)
    counted.clear()
    assert made(store, kinds["Pod"])["metadata"]["labels"]["a"] == "b"
    assert 1 < counted["Pod"] < 4
