"""Update strategies that kube-apiserver rejects, because the rollout would never end or have no effect."""

import random

import pytest

from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError
from moorage.api.feature_gates import FeatureGates
from moorage.rules.store.store import Store


def workload(kind, spec):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"}, "spec": spec}


def create(store, kind, spec):
    return store.create(served(f"{kind.lower()}s", "apps"), "default", workload(kind, spec)).document()["spec"]


def rolling(**given):
    return {"type": "RollingUpdate", "rollingUpdate": given}


def deployment(**given):
    return "Deployment", {"strategy": rolling(**given)}


def daemons(**given):
    return "DaemonSet", {"updateStrategy": rolling(**given)}


NEGATIVE = "must be greater than or equal to 0"
NO_SHARE = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for"
REFUSED = {  # the workload, what is said first; as kube-apiserver v1.36.2 answered
    "recreated and rolled": (
        ("Deployment", {"strategy": {"type": "Recreate", "rollingUpdate": {}}}),
        "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
    ),
    "another type": (
        ("Deployment", {"strategy": {"type": "Bad"}}),
        'spec.strategy: Unsupported value: {"Type":"Bad","RollingUpdate":null}: supported values: "Recreate", "RollingUpdate"',
    ),
    "not one more, not one less": (
        deployment(maxSurge=0, maxUnavailable="0%"),
        'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0',
    ),
    "no share": (deployment(maxSurge="5"), f'spec.strategy.rollingUpdate.maxSurge: Invalid value: "5": {NO_SHARE}'),
    "below zero": (
        deployment(maxSurge=-1, maxUnavailable=1), f"spec.strategy.rollingUpdate.maxSurge: Invalid value: -1: {NEGATIVE}",
    ),
    "more than all": (
        deployment(maxSurge="150%", maxUnavailable="150%"),
        'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "150%": must not be greater than 100%',
    ),
    "late before it counts": (
        ("Deployment", {"minReadySeconds": 700}),
        "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds",
    ),
    "a wait below zero": (("StatefulSet", {"minReadySeconds": -1}), f"spec.minReadySeconds: Invalid value: -1: {NEGATIVE}"),
    "a history below zero": (
        ("DaemonSet", {"revisionHistoryLimit": -1}), f"spec.revisionHistoryLimit: Invalid value: -1: {NEGATIVE}",
    ),
    "another type of daemons": (
        ("DaemonSet", {"updateStrategy": {"type": "Bad"}}),
        ('spec.updateStrategy: Unsupported value: {"Type":"Bad","RollingUpdate":null}: supported values: "RollingUpdate", '
        '"OnDelete"'),
    ),
    "daemons both ways": (
        daemons(maxSurge=1, maxUnavailable=1),
        "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
    ),
    "daemons no way": (
        daemons(maxSurge=0, maxUnavailable=0),
        "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
    ),
    "a partition of those that wait": (
        ("StatefulSet", {"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}}),
        ("spec.updateStrategy.rollingUpdate: Invalid value: "
        '{"Partition":1,"MaxUnavailable":null}: only allowed for updateStrategy \'RollingUpdate\''),
    ),
    "a partition below zero": (
        ("StatefulSet", {"updateStrategy": rolling(partition=-1)}),
        f"spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: {NEGATIVE}",
    ),
    "another type of sets": (
        ("StatefulSet", {"updateStrategy": {"type": "Bad"}}),
        'spec.updateStrategy: Invalid value: {"Type":"Bad","RollingUpdate":null}: must be \'RollingUpdate\' or \'OnDelete\'',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "why"), REFUSED.values(), ids=REFUSED)
def test_invalid_rollouts(store, sent, why):
    with pytest.raises(ApiError) as refused:
        create(store, *sent)
    assert refused.value.code == 422
    assert str(refused.value).partition(" is invalid: ")[2].removeprefix("[").startswith(why)


def test_a_set_that_may_have_no_unavailable_pod_is_rejected_in_later_releases(clock):
    store = Store(clock, random.Random(7), b"a key for tests", gates=FeatureGates.parse("MaxUnavailableStatefulSet=true"))
    with pytest.raises(ApiError, match=r"maxUnavailable: Invalid value: 0: cannot be 0"):
        create(store, "StatefulSet", {"updateStrategy": rolling(maxUnavailable=0)})


TAKEN = {
    "all at once": ("Deployment", {"strategy": {"type": "Recreate"}}),
    "twice as many": deployment(maxSurge="200%", maxUnavailable=0),
    "daemons that surge": daemons(maxSurge="50%", maxUnavailable=0),
    "daemons by hand": ("DaemonSet", {"updateStrategy": {"type": "OnDelete"}}),
    "the last two": ("StatefulSet", {"updateStrategy": rolling(partition=2)}),
    "sets by hand": ("StatefulSet", {"updateStrategy": {"type": "OnDelete"}}),
}


@pytest.mark.parametrize("sent", TAKEN.values(), ids=TAKEN)
def test_valid_rollouts(store, sent):
    assert create(store, *sent)["selector"] == {"matchLabels": {"a": "b"}}
