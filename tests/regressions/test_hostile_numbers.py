"""No number in an object, whatever its field, ends a program: it is read as the API reads it, or refused by name.

Every numeric field of every kind, with numbers beyond 64 bits and such that JSON does not have. The usual run takes a part of
them, another one each day; MOORAGE_HOSTILE_NUMBERS=all takes them all.
"""

from __future__ import annotations

import datetime
import os
import pickle
import random
import time
from contextlib import suppress

import msgspec
import numpy as np
import pytest

from moorage import Cluster
from moorage.api import packing
from moorage.api.core import Pod
from moorage.api.devices import DeviceClass, ResourceClaim
from moorage.api.documents.served_kinds import KINDS as SERVED
from moorage.api.documents.statuses import ApiError
from moorage.api.reading import json_tree
from moorage.basis.client.listwatch import ObjectDecoder
from moorage.basis.client.watched_resources import WATCHED
from moorage.errors import InputError, MoorageError
from moorage.laboratory.cluster_objects import read_given
from moorage.laboratory.compare.input_digest import input_digest
from moorage.laboratory.metrics import sums
from moorage.rules.store.store import Store
from moorage.simulator.cluster_run import simulate_cluster
from moorage.simulator.simulate import Options
from tests.hostile_numbers import NUMBERS, document, every

ALL = list(every())
SEED = datetime.datetime.now(tz=datetime.UTC).date().toordinal()
SOME = ALL if os.environ.get("MOORAGE_HOSTILE_NUMBERS") == "all" else random.Random(SEED).sample(ALL, 150)
AROUND = [
    {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    },
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "claims"},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "g", "resourceClaimName": "hostile"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "hostile"}}],
        },
    },
]  # fmt: skip


def test_there_are_hundreds_of_fields():
    assert len({(kind, path) for kind, path, _ in ALL}) > 400


@pytest.mark.slow
def test_simulations_and_questions_go_on():
    read, refused = 0, []
    for kind, path, number in SOME:
        text = document(kind, path, number)
        try:
            given = read_given([*AROUND, text])
        except InputError as error:
            refused.append(str(error))
            continue
        read += 1
        input_digest(given)
        simulate_cluster(given, Options())
        with suppress(MoorageError):
            cluster = Cluster.from_objects(*AROUND, text)
            cluster.schedule()
            pickle.loads(pickle.dumps(cluster))
            cluster.fork()
    assert all("object 4" in line for line in refused)
    assert read > len(SOME) // 20


@pytest.mark.slow
def test_the_api_server_answers():
    kinds = {kind.kind: kind for kind in SERVED}
    store = Store(time.time, random.Random(5), b"k")
    codes = set()
    for count, (kind, path, number) in enumerate(SOME):
        try:
            ((given, _),) = json_tree.read_tree(document(kind, path, number).encode(), "body")
        except InputError:
            assert number in {"infinite", "nan"}
            continue
        given["metadata"]["name"] = f"hostile-{count}"
        try:
            store.create(kinds[kind], given["metadata"].get("namespace", ""), given)
            codes.add(201)
        except ApiError as error:
            codes.add(error.code)
    assert {201, 422} <= codes <= {201, 400, 403, 422}


PLAIN = {"metadata": {"name": "plain", "namespace": "default"}}


@pytest.mark.parametrize("resource", WATCHED, ids=lambda one: one.plural)
def test_a_watch_leaves_out_what_it_cannot_read(resource):
    """A faulty server sends a hostile object beside a sound one, in a list and in a watch."""
    told = []
    decoder = ObjectDecoder(resource, told.append)
    plain = msgspec.json.encode(PLAIN)
    for kind, path, number in ALL:
        if kind != resource.type.__name__ or number in {"infinite", "nan"}:
            continue
        told.clear()
        hostile = document(kind, path, number).encode()
        page = decoder.page(b'{"metadata":{"resourceVersion":"1"},"items":[%s,%s]}' % (hostile, plain))
        names = [obj.metadata.name for obj in page.objects]
        assert names in (["hostile", "plain"], ["plain"]), (path, number)
        assert len(told) == (len(names) == 1), (path, number)
        assert all("hostile" in line for line in told)
        event = decoder.event(b'{"type":"ADDED","object":%s}' % hostile)
        assert (event.obj is None) == (len(names) == 1)


# -- what a number is read as ----------------------------------------------------------------------------------------------

WIDE = int(NUMBERS["wide"])


@pytest.mark.parametrize("number", [WIDE, -WIDE, 2**63, 2**64, -(2**63) - 1, 7])
def test_opaque_parameters_keep_a_number_of_any_width(number):
    parameters = {"driver": "d", "parameters": {"n": number, "deep": [{"m": [number, 1.5, "x", None, True]}]}}
    claim = msgspec.convert({"spec": {"devices": {"config": [{"opaque": parameters}]}}}, ResourceClaim)
    for kind, obj in ((ResourceClaim, claim), (DeviceClass, DeviceClass())):
        for ordered in (False, True):
            assert packing.unpack(packing.pack(obj, ordered=ordered), kind) == obj
    assert packing.pack({"a": number, "b": 1}, ordered=True) == packing.pack({"b": 1, "a": number}, ordered=True)
    text = msgspec.json.encode(claim)
    assert str(number).encode() in text


def test_a_quantity_of_any_width_is_read_from_its_digits():
    text = document("Node", ("status", "allocatable", "k"), "wide")
    (node,) = read_given([text]).nodes
    assert node.status.allocatable["cpu"] == NUMBERS["wide"]


@pytest.mark.parametrize(
    "field",
    [
        {"priority": 2**63},
        {"tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": WIDE}]},
        {"terminationGracePeriodSeconds": -(2**63) - 1},
    ],
)
def test_an_integer_that_is_too_wide_is_refused_by_name(field):
    told = []
    decoder = ObjectDecoder(next(one for one in WATCHED if one.type is Pod), told.append)
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [], **field}}
    event = decoder.event(b'{"type":"ADDED","object":%s}' % msgspec.json.encode(pod))
    assert event.obj is None
    assert f"Pod default/p: spec.{next(iter(field))}" in told[0]
    assert "expected an integer of 64 bits, found " in told[0]


def test_sums_are_exact_beyond_64_bits():
    amounts = np.array([[2**63 - 1, 4000], [2**63 - 1, 3], [0, 0]])
    assert sums(amounts) == [2**64 - 2, 4003]
    assert sums(amounts[:0]) == [0, 0]
    assert sums(np.array([[0.5], [2.0]])) == [2.5]
