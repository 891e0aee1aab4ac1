"""What kube-apiserver 1.37.2 answered to random requests whose answers once differed here: this server answers alike.

``answers_1_37.json`` has a request a line: the kind, the method, the path, the media type and the body, and then the code and
the answer; a refusal is its message. uids, times, versions, addresses and ports are masked as by ``tools.differential``. The
requests are dry runs about the objects of its table.
"""

import copy
import itertools
import json
import random
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from moorage.api.documents.http_messages import User
from moorage.api.documents.request_targets import find_target
from moorage.api.documents.statuses import ApiError
from moorage.api.feature_gates import FeatureGates
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.http.requests import HTTPRequest, serve
from moorage.rules.store.store import Store
from tools.differential.api_answers import Answer, Request, differences
from tools.differential.api_known import known
from tools.differential.apiserver import planted_bases

ROWS = [json.loads(line) for line in (Path(__file__).parent / "answers_1_37.json").read_text(encoding="utf-8").splitlines()]
ME = User("admin", ("system:masters", "system:authenticated"), uid="admin")
#: The paths of requests about one kind share a test.
BY_KIND = {kind: [row for row in ROWS if row[0] == kind] for kind in dict.fromkeys(row[0] for row in ROWS)}


@pytest.fixture(scope="module")
def ask():
    seconds = itertools.count(1_795_000_000)
    store = Store(lambda: float(next(seconds)), random.Random(3), b"k", gates=FeatureGates(release="1.37"))
    bootstrap_cluster(store)
    store.empties_namespaces = False
    guard, authorizer = Authenticator({}), Authorizer(store)

    def answer(method, path, body=None, form="application/json"):
        where = urlsplit(path)
        content = b"" if body is None else msgspec.json.encode(body)
        query = dict(parse_qsl(where.query, keep_blank_values=True))
        sent = HTTPRequest(method, where.path, query, "application/json", form, content, ME, "differential")
        try:
            response = serve(store, guard, authorizer, sent, find_target(where.path, store.kinds))
        except ApiError as refused:
            return Answer(refused.code, refused.status())
        return Answer(response.code, msgspec.json.decode(response.body))

    for name in ("berth", "quay"):
        answer("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        answer("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
    for collection, document in planted_bases(store.kinds):
        planted = answer("POST", collection, copy.deepcopy(document))
        assert planted.code in {201, 409}, planted.message
    return answer


@pytest.mark.parametrize("rows", BY_KIND.values(), ids=BY_KIND)
def test_answers_equal_those_of_kube_apiserver(ask, rows):
    for kind, method, path, form, body, code, wanted in rows:
        found = ask(method, path, body, form)
        said = {"kind": "Status", "message": wanted} if isinstance(wanted, str) else wanted
        expected = Answer(code, said)
        if isinstance(wanted, str):
            found = Answer(found.code, {"kind": "Status", "message": found.message})
        request = Request(method, path, body, form, kind=kind)
        others = [one for one in differences(found, expected) if not known(request, one)]
        assert others == [], (method, path, body)
