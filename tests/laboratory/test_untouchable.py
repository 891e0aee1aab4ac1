"""No change that is offered touches what is to be left alone, whatever the cluster."""

from pathlib import Path

import pytest

import moorage
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.change.least_change import ChangeLimits, find_least_change
from moorage.laboratory.change.untouchable import Untouchable
from moorage.laboratory.cluster import Cluster

DEMO = Path(__file__).parents[2] / "examples" / "demo"
PROTECTED = (
    "nodes:topology.kubernetes.io/zone=eu-1a", "nodes:general-c2", "pods:app=web", "pods:app in (web, search)",
    "namespaces:default", "namespaces:kubernetes.io/metadata.name!=x",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("text", PROTECTED)
def test_no_offered_change_touches_it(text):
    cluster = Cluster.read(DEMO)
    run = cluster.run()
    around, alone = cluster.present(), Untouchable((text,))
    for pod in run.in_state("Pending"):
        key = f"{pod.namespace}/{pod.name}"
        limits = ChangeLimits(untouched=alone, probes=200)
        answers = find_least_change(cluster.trials_of(key, None)[0], around, limits)
        for one in answers.remedies:
            assert not alone.holds_any(one.changes, around), one
            assert not alone.holds_pods((*one.displaced, *one.stranded), around), one


def change(target):
    return Change("pod", "request", target, "requests.cpu", 2, 1)


TARGETS = {
    "a pod by a label": ("pods:app=db", "pod/shop/db-0", True),
    "a pod by its name": ("pods:db-0", "pod/shop/db-0", True),
    "a pod by namespace and name": ("pods:shop/db-0", "pod/shop/db-0", True),
    "one of another namespace": ("pods:other/db-0", "pod/shop/db-0", False),
    "its workload": ("pods:app=db", "statefulset/shop/db", True),
    "its namespace": ("namespaces:shop", "statefulset/shop/db", True),
    "its namespace by a label": ("namespaces:tier=gold", "pod/shop/db-0", True),
    "another namespace": ("namespaces:other", "pod/shop/db-0", False),
    "a node by its name": ("nodes:n1", "node/n1", True),
    "a node by a label": ("nodes:pool in (a)", "node/n1", True),
    "another node": ("nodes:n2", "node/n1", False),
    "a node that is new": ("nodes:pool=a", "node/n9", False),
    "the configuration": ("namespaces:shop", "config/default-scheduler", False),
}


@pytest.mark.parametrize(("text", "target", "holds"), TARGETS.values(), ids=TARGETS)
def test_a_target_is_left_alone_by_name_label_namespace_and_workload(text, target, holds):
    labels = {"app": "db"}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    owned = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    around = moorage.Cluster.from_objects(
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"tier": "gold"}}},
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"pool": "a"}}},
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "shop"}, "spec": owned},
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "db-0", "namespace": "shop", "labels": labels},
                "spec": spec,
            },
        ]
    ).present()
    assert Untouchable((text,)).holds_any([change(target)], around) is holds
    if target.startswith("pod/"):
        assert Untouchable((text,)).holds_pods([target.removeprefix("pod/")], around) is holds


@pytest.mark.parametrize("text", ["app=db", "pods:", "jobs:x", "pods:a in (", ""])
def test_a_text_of_another_form_is_refused(text):
    with pytest.raises(InputError):
        Untouchable((text,))


@pytest.mark.slow
def test_a_program_names_what_is_left_alone():
    cluster = moorage.Cluster.read(DEMO)
    cluster.run()
    offered = cluster.least_change("search-2")
    assert "node/general-c2" in str(offered)
    left = cluster.least_change("search-2", untouched=["nodes:general-c2"])
    assert left
    assert "node/general-c2" not in str(left)
    assert "node/general-c2" not in str(cluster.explain("search-2", untouched=["nodes:general-c2"]).changes)
