"""Probes have one handler and variables one source, as in kube-apiserver."""

import pytest

from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError

HTTP = {"httpGet": {"port": 80}}
NAME = {"fieldRef": {"fieldPath": "metadata.name"}}
KEY = {"secretKeyRef": {"name": "a", "key": "b"}}


def pod(container=(), **spec):
    spec = {"containers": [{"name": "c", "image": "i", **dict(container)}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def alive(**probe):
    return pod({"livenessProbe": probe})


def ready(**probe):
    return pod({"readinessProbe": probe})


def first(**more):
    return pod(initContainers=[{"name": "i", "image": "i", "livenessProbe": HTTP, **more}])


def variable(**source):
    return pod({"env": [{"name": "A", **source}]})


RANGE = "must be between 1 and 65535, inclusive"
ALIVE, READY, ENV = (f"spec.containers[0].{name}" for name in ("livenessProbe", "readinessProbe", "env[0].valueFrom"))
REFUSED = {  # as kube-apiserver v1.36.2 answered
    "in no way": (alive(), f"{ALIVE}: Required value: must specify a handler type"),
    "in two ways": (
        alive(**HTTP, tcpSocket={"port": 1}), f"{ALIVE}.tcpSocket: Forbidden: may not specify more than 1 handler type",
    ),
    "no port": (alive(httpGet={"path": "/"}), f"{ALIVE}.httpGet.port: Invalid value: 0: {RANGE}"),
    "a port that is no name": (
        alive(httpGet={"port": "Bad_"}),
        f'{ALIVE}.httpGet.port: Invalid value: "Bad_": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)',
    ),
    "a port beyond": (ready(tcpSocket={"port": 70000}), f"{READY}.tcpSocket.port: Invalid value: 70000: {RANGE}"),
    "no command": (alive(exec={}), f"{ALIVE}.exec.command: Required value"),
    "another scheme": (
        alive(httpGet={"port": 80, "scheme": "ftp"}),
        f'{ALIVE}.httpGet.scheme: Unsupported value: "ftp": supported values: "HTTP", "HTTPS"',
    ),
    "less than never": (
        alive(**HTTP, periodSeconds=-1), f"{ALIVE}.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
    ),
    "alive twice": (alive(**HTTP, successThreshold=2), f"{ALIVE}.successThreshold: Invalid value: 2: must be 1"),
    "no grace": (
        alive(**HTTP, terminationGracePeriodSeconds=0),
        f"{ALIVE}.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
    ),
    "grace for who is not ready": (
        ready(**HTTP, terminationGracePeriodSeconds=2),
        f"{READY}.terminationGracePeriodSeconds: Invalid value: 2: must not be set for readinessProbes",
    ),
    "who is over": (
        first(),
        "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
    ),
    "from nowhere": (variable(valueFrom={}), f'{ENV}: Invalid value: "": must specify one of: `fieldRef`'),
    "from elsewhere, too": (
        variable(value="b", valueFrom=NAME), f'{ENV}: Invalid value: "": may not be specified when `value` is not empty',
    ),
    "from two places": (
        variable(valueFrom=NAME | KEY),
        f'{ENV}: Invalid value: "": may not have more than one field specified at a time',
    ),
    "two volumes of a name": (
        pod(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
        'spec.volumes[1].name: Duplicate value: "v"',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "why"), REFUSED.values(), ids=REFUSED)
def test_rejected_probes_and_sources(store, sent, why):
    with pytest.raises(ApiError) as refused:
        store.create(served("pods", ""), "default", sent)
    assert refused.value.code == 422
    assert str(refused.value).startswith(f'Pod "p" is invalid: {why}')


TAKEN = {
    "by HTTP": alive(**HTTP),
    "by name": alive(httpGet={"port": "http"}),
    "by a command": ready(exec={"command": ["a"]}, successThreshold=3),
    "one that goes first and stays": first(restartPolicy="Always"),
    "from a field": variable(valueFrom=NAME),
    "from a secret": variable(valueFrom=KEY),
}


@pytest.mark.parametrize("sent", TAKEN.values(), ids=TAKEN)
def test_accepted_probes_and_sources(store, sent):
    assert store.create(served("pods", ""), "default", sent).name == "p"
