"""Ingresses, which are stored but not implemented; and custom kinds, of which there are none."""

import pytest

from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.tables.tables import table

INGRESSES = served("ingresses", "networking.k8s.io")
SERVICE = {"service": {"name": "svc", "port": {"number": 80}}}
PREFIX = {"pathType": "Prefix", "path": "/c", "backend": SERVICE}


def ingress(**spec):
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"}, "spec": spec}


def paths(*given, **rule):
    return {"rules": [{**rule, "http": {"paths": [*given]}}]}


def to(**backend):
    return {"defaultBackend": {"service": {"name": "a", **backend}}}


PATH = "spec.rules[0].http.paths[0]"
REFUSED = {  # as kube-apiserver v1.36.2 has it
    "nothing": ({}, "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"),
    "no path": (paths(), "spec.rules[0].http.paths: Required value"),
    "no type": (paths({"path": "x", "backend": {}}), f"{PATH}.pathType: Required value: pathType must be specified"),
    "another type": (
        paths({**PREFIX, "pathType": "Foo"}),
        f'{PATH}.pathType: Unsupported value: "Foo": supported values: "Exact", "ImplementationSpecific", "Prefix"',
    ),
    "no absolute path": (paths({**PREFIX, "path": "c"}), f'{PATH}.path: Invalid value: "c": must be an absolute path'),
    "no backend": (paths({**PREFIX, "backend": {}}),
                   f'{PATH}.backend: Invalid value: "": resource or service backend is required'),
    "an invalid host": (paths(PREFIX, host="A b"), 'spec.rules[0].host: Invalid value: "A b": a lowercase RFC 1123'),
    "an invalid service": (to(port={"number": 1}) | paths({**PREFIX, "backend": {"service": {"name": "B_", "port": {}}}}),
                               f'{PATH}.backend.service.name: Invalid value: "B_": a lowercase RFC 1123 label'),
    "no port": (to(port={}), "spec.defaultBackend: Required value: port name or number is required"),
    "two ports": (to(port={"name": "x", "number": 1}),
                  'spec.defaultBackend: Invalid value: "": cannot set both port name & port number'),
    "an invalid port": (to(port={"number": 70000}),
                            "spec.defaultBackend.service.port.number: Invalid value: 70000: must be between 1 and 65535"),
    "an invalid class": (to(port={"number": 1}) | {"ingressClassName": "A"}, 'spec.ingressClassName: Invalid value: "A": '),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "why"), REFUSED.values(), ids=REFUSED)
def test_invalid_ingresses(store, spec, why):
    with pytest.raises(ApiError) as refused:
        store.create(INGRESSES, "default", ingress(**spec))
    assert refused.value.code == 422
    assert why in str(refused.value)


SHOWN = {
    "everything": (to(port={"number": 1}), ["<none>", "*", "80"]),
    "a host": (paths(PREFIX, host="a.b") | {"ingressClassName": "ngx"}, ["ngx", "a.b", "80"]),
    "many hosts": ({"rules": [{"host": f"{n}.b"} for n in "abcde"], "tls": [{"hosts": ["a.b"]}]},
                   ["<none>", "a.b,b.b,c.b + 2 more...", "80, 443"]),
    "of a domain": (paths({"pathType": "ImplementationSpecific", "backend": SERVICE}, host="*.b"), ["<none>", "*.b", "80"]),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "cells"), SHOWN.values(), ids=SHOWN)
def test_an_ingress_in_a_table(store, spec, cells):
    held = store.create(INGRESSES, "default", ingress(**spec)).document()
    assert held["status"] == {"loadBalancer": {}}
    assert held["metadata"]["generation"] == 1
    (row,) = table(INGRESSES, [held], store.clock(), "None")["rows"]
    name, in_class, hosts, address, ports, _ = row["cells"]
    assert (name, address) == ("i", "")
    assert [in_class, hosts, ports] == cells
