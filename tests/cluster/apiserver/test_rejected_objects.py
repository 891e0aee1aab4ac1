"""Invalid objects of every kind that kube-apiserver v1.36.2 rejected, with its causes: the embedded server rejects them alike.

``rejected_objects.json`` holds one change of a valid object a line: the kind, the place, the value there, and the code and the
causes of kube-apiserver (a distribution's build, over etcd 3.4, without the admission of service accounts). uids and times are
masked. What it says of roles without verbs, attributes without values and workloads without templates is that of v1.37.2.
"""

import json
import random
from pathlib import Path

import pytest

from moorage.api.documents.http_messages import HTTPRequest, User
from moorage.api.documents.request_targets import Target
from moorage.api.documents.served_kinds import KINDS
from moorage.api.documents.statuses import ApiError
from moorage.api.feature_gates import FeatureGates
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.cluster.apiserver.http.write_requests import create
from moorage.rules.store.store import Store
from tools.attacks.differences import masked
from tools.attacks.objects import valid_object

CASES = json.loads((Path(__file__).parent / "rejected_objects.json").read_text(encoding="utf-8"))
BY_KIND = {name: [case for case in CASES if case[0] == name] for name in dict.fromkeys(case[0] for case in CASES)}
ME = User("admin", ("system:masters",))


def put(document, place, value):
    *steps, last = [int(step) if step.isdigit() else step for step in place.split("/")]
    for step in steps:
        document = document[step] if isinstance(document, list) else document.setdefault(step, {})
    document[last] = value


def rejection(store, kind, document):
    namespace = "probe" if kind.namespaced else ""
    body = json.dumps(document).encode()
    request = HTTPRequest("POST", "/", {"dryRun": "All"}, "", "application/json", body, ME, "attacks")
    try:
        create(store, request, Target(kind, namespace), None)
    except ApiError as error:
        causes = sorted([cause.field, cause.reason, masked(cause.message)] for cause in error.causes)
        return error.code, causes or error.message
    return 201, []


@pytest.fixture(scope="module")
def store():
    made = Store(lambda: 1_790_000_000.0, random.Random(3), b"k", gates=FeatureGates({"GenericWorkload": True}))
    bootstrap_cluster(made)
    made.empties_namespaces = False
    made.needs_accounts = False  # faults of pods alone
    request = HTTPRequest("POST", "/", {}, "", "application/json", b'{"metadata": {"name": "probe"}}', ME, "attacks")
    create(made, request, Target(next(kind for kind in KINDS if kind.kind == "Namespace"), ""), None)
    return made


@pytest.mark.parametrize("name", BY_KIND)
def test_invalid_objects_are_rejected_as_by_kube_apiserver(store, name):
    kind = next(kind for kind in KINDS if kind.qualified == name)
    namespace = "probe" if kind.namespaced else ""
    assert rejection(store, kind, valid_object(kind, namespace, "fine"))[0] == 201
    for _, place, value, code, causes in BY_KIND[name]:
        document = valid_object(kind, namespace, "probe")
        put(document, place, value)
        assert rejection(store, kind, document) == (code, causes), (place, value)
