"""What a kube-apiserver answered, request by request, and what this one does.

``recorded_*.json`` hold requests with the answers of kube-apiserver v1.36.2 (with a distribution's patches, and with
etcd 3.5 or 3.6; its admission plugin ServiceAccount off): the code, and the object or the Status. What differs from run to run
is taken out: uids, times, versions, and who manages fields. Each story begins with an empty cluster. The status of CSINodes,
which the types of 1.37 have whatever the release, is added to the recorded answers.
"""

import json
import random
import re
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

STORIES = {
    name: steps
    for path in sorted(Path(__file__).parent.glob("recorded_*.json"))
    for name, steps in json.loads(path.read_text(encoding="utf-8")).items()
}
ME = User("admin", ("system:masters",))
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VERSION = re.compile(r"(in object meta: |in record \()\d+")
_TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def plain(value):
    """Return a response without what differs between runs, and without the diff that some errors show."""
    if isinstance(value, dict):
        value = {name: plain(one) for name, one in value.items()}
        if isinstance(metadata := value.get("metadata"), dict):
            for name in ("uid", "resourceVersion", "managedFields"):
                metadata.pop(name, None)
        return value
    if isinstance(value, list):
        return [plain(one) for one in value]
    value = value.partition("\n@@")[0] if isinstance(value, str) else value
    return _VERSION.sub(r"\1N", _TIME.sub("TIME", _UID.sub("UID", value))) if isinstance(value, str) else value


class Server:
    def __init__(self, release="1.36"):
        self.store = Store(lambda: 1_750_000_000.0, random.Random(3), b"k", gates=FeatureGates(release=release))
        bootstrap_cluster(self.store)
        self.store.empties_namespaces = False
        self.store.needs_accounts = False  # as the API server that was recorded
        self.guard = Authenticator({})
        self.authorizer = Authorizer(self.store)

    def ask(self, method, path, body=None, form="application/json"):
        where = urlsplit(path)
        content = b"" if body is None else msgspec.json.encode(body)
        request = HTTPRequest(
            method, where.path, dict(parse_qsl(where.query)), "application/json", form, content, ME, "kubectl/x"
        )
        try:
            target = find_target(where.path)
            response = serve(self.store, self.guard, self.authorizer, request, target)
        except ApiError as refused:
            return [refused.code, plain(refused.status())]
        answer = plain(msgspec.json.decode(response.body))
        if answer.get("kind") == "TokenRequest":
            del answer["status"]["token"]
        return [response.code, answer]


@pytest.mark.parametrize("steps", STORIES.values(), ids=STORIES)
def test_responses_equal_those_of_kube_apiserver(steps):
    server = Server()
    for step in steps:
        assert server.ask(*step["asked"]) == step["answered"], step["asked"][:2]


def test_what_1_37_answers_otherwise():
    server = Server("1.37")
    meta = {"metadata": {"name": "s"}}
    code, driver = server.ask("POST", "/apis/storage.k8s.io/v1/csidrivers", {**meta, "spec": None})
    assert (code, driver["spec"]["preventPodSchedulingIfMissing"]) == (201, False)
    path = "/apis/storage.k8s.io/v1/storageclasses"
    assert server.ask("POST", path, {**meta, "provisioner": "p"})[0] == 201
    code, refused = server.ask("PATCH", f"{path}/s", {"provisioner": "q"}, "application/merge-patch+json")
    assert code == 422
    assert "provisioner: Invalid value: null: field is immutable" in refused["message"]
