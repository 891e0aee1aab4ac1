"""Changes that write a number of any size into any numeric field are answered as kube-apiserver 1.37.2 answers them.

``change_codes.json`` has the codes that a kube-apiserver gave, for each field and each number of ``tests.hostile_numbers`` in
their order: the form of the change (u: PUT, m: merge patch, j: JSON patch, s: strategic merge patch, a: apply), "/" for the
subresource ``status``, and the code. 0 stands for a request that it did not survive: a panic, which we do not imitate.

The usual run takes a part, another one each day; MOORAGE_HOSTILE_NUMBERS=all takes them all.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import random
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from moorage.api.documents.http_messages import HTTPRequest, User
from moorage.api.documents.request_targets import find_target
from moorage.api.documents.statuses import ApiError
from moorage.api.feature_gates import FeatureGates
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.http.requests import serve
from moorage.rules.store.store import Store
from tests.hostile_fields import FORMS, base_of, change_of, name_of, numeric_fields, url_of
from tests.hostile_numbers import NUMBERS

LETTERS = dict(zip("umjsa", FORMS, strict=True))
RECORDED = json.loads(Path(__file__).with_name("change_codes.json").read_text(encoding="utf-8"))
ME = User("admin", ("system:masters", "system:authenticated"), uid="admin")
#: Field, number → our code, where it is another one on purpose: Go wraps an amount beyond 64 bits around, and writes none above
#: 10^21 with its power of ten.
OTHER = {
    ("/v1/PersistentVolume spec.capacity.k", "beyond"): 200,
    ("/v1/PersistentVolumeClaim status.capacity.k", "beyond"): 200,
    ("/v1/ResourceQuota spec.hard.k", "wide"): 200,
}


def cases():
    """Yield the kind, the path, the number, the form, whether it is the status, and the code."""
    for kind, path in numeric_fields():
        name, _, field = name_of(kind, path).partition(" ")
        if (codes := RECORDED.get(name, {}).get(field)) is None:
            continue
        for number, text in zip(NUMBERS, codes.split(), strict=True):
            code = int(text.lstrip("umjsa/")) or 400
            if (name, text) == ("/v1/Pod", "u200"):
                # The recorded server had no service accounts: here their admission sets fields that this update clears.
                code = 422
            yield kind, path, number, LETTERS[text[0]], "/" in text, OTHER.get((f"{name} {field}", number), code)


CASES = list(cases())
SEED = datetime.datetime.now(tz=datetime.UTC).date().toordinal()
SOME = CASES if os.environ.get("MOORAGE_HOSTILE_NUMBERS") == "all" else random.Random(SEED).sample(CASES, 500)


@pytest.fixture(scope="module")
def ask():
    seconds = itertools.count(1_795_000_000)
    store = Store(lambda: float(next(seconds)), random.Random(3), b"k", gates=FeatureGates(release="1.37"))
    bootstrap_cluster(store)
    store.empties_namespaces = False
    guard, authorizer = Authenticator({}), Authorizer(store)

    def answer(method, path, body=b"", form="application/json", query=None):
        sent = HTTPRequest(method, path, query or {}, "application/json", form, body, ME, "tests")
        try:
            response = serve(store, guard, authorizer, sent, find_target(path, store.kinds))
        except ApiError as refused:
            return refused.code, refused.message
        return response.code, msgspec.json.decode(response.body)

    answer("POST", "/api/v1/namespaces", json.dumps({"metadata": {"name": "default"}}).encode())
    answer("POST", "/api/v1/namespaces/default/serviceaccounts", json.dumps({"metadata": {"name": "default"}}).encode())
    return answer


def test_the_numbers_of_each_field_are_recorded():
    assert len(CASES) == 6 * sum(map(len, RECORDED.values()))
    assert len(CASES) > 12_000


@pytest.mark.slow
def test_changes_are_answered_as_recorded(ask):
    different = []
    of_kind = defaultdict(list)
    for one in SOME:
        of_kind[one[0]].append(one)
    for kind, wanted in of_kind.items():
        base = base_of(kind, "hostile")
        name = base["metadata"].get("name", "hostile")
        code, made = ask("POST", url_of(kind), json.dumps(base, separators=(",", ":")).encode())
        assert code == 201, made
        version = ask("GET", f"{url_of(kind)}/{name}")[1]["metadata"]["resourceVersion"]
        for _, path, number, form, is_status, code in wanted:
            method, query, body = change_of(kind, path, number, form, name, version)
            place = f"{url_of(kind)}/{name}{'/status' if is_status else ''}"
            found = ask(method, place, body, FORMS[form], query)
            if found[0] != code:
                different.append((name_of(kind, path), number, form, is_status, found, code))
        ask("DELETE", f"{url_of(kind)}/{name}", b'{"gracePeriodSeconds":0}')
    assert different == [], different
