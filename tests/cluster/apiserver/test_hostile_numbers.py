"""A number of any size in any numeric field of any kind is answered as kube-apiserver 1.37.2 answers it.

``number_codes.json`` has the codes that a kube-apiserver gave: for the numbers of ``tests.hostile_numbers`` in their order,
the fields with these codes. 0 stands for a request that it did not survive: a panic, which we do not imitate.

The usual run takes a part, another one each day; MOORAGE_HOSTILE_NUMBERS=all takes them all.
"""

import base64
import datetime
import json
import os
import random
import signal
import ssl
import subprocess
import time
from http.client import HTTPSConnection
from pathlib import Path

import pytest
import yaml

from moorage.api.documents.http_messages import HTTPRequest, User
from moorage.api.documents.request_targets import Target
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.http import write_requests
from moorage.rules.store.store import Store
from tests.hostile_fields import body_of, name_of, numeric_fields, url_of
from tests.hostile_numbers import NUMBERS
from tests.interfaces.cli.conftest import PROGRAM, environment

RECORDED = {
    field: dict(zip(NUMBERS, map(int, codes.split()), strict=True))
    for codes, fields in json.loads(Path(__file__).with_name("number_codes.json").read_text(encoding="utf-8")).items()
    for field in fields
}
CASES = [
    (kind, path, number) for kind, path in numeric_fields() if name_of(kind, path) in RECORDED for number in NUMBERS
]  # fmt: skip
SEED = datetime.datetime.now(tz=datetime.UTC).date().toordinal()
SOME = CASES if os.environ.get("MOORAGE_HOSTILE_NUMBERS") == "all" else random.Random(SEED).sample(CASES, 300)
#: Field and number → our code, where it is another one on purpose.
OTHER = {
    # Go wraps an amount beyond 64 bits around, and writes none above 10^21 with its power of ten.
    ("/v1/PersistentVolume spec.capacity.k", "beyond"): 201,
    ("/v1/ResourceQuota spec.hard.k", "wide"): 201,
    # Overhead without a runtime class is refused before fields are checked.
    ("/v1/Pod spec.overhead.k", "minus"): 403,
}  # fmt: skip


#: Kinds that the recorded server did not serve, or whose base object it refuses.
LEFT_OUT = {
    "certificates.k8s.io/v1/PodCertificateRequest",
    "coordination.k8s.io/v1beta1/LeaseCandidate",
    "internal.apiserver.k8s.io/v1alpha1/StorageVersion",
    "lifecycle.k8s.io/v1alpha1/Eviction",
    "lifecycle.k8s.io/v1alpha1/EvictionRequest",
    "resource.k8s.io/v1alpha3/ResourcePoolStatusRequest",
    "scheduling.k8s.io/v1alpha2/PodGroup",
    "scheduling.k8s.io/v1alpha2/Workload",
    "scheduling.k8s.io/v1alpha3/CompositePodGroup",
}


def wanted(kind, path, number):
    code = RECORDED[name_of(kind, path)][number] or 400
    return OTHER.get((name_of(kind, path), number), code)


def test_the_numbers_of_each_field_are_recorded():
    assert len(RECORDED) > 2000
    unknown = {name_of(kind, path) for kind, path in numeric_fields() if name_of(kind, path) not in RECORDED}
    assert {name.split()[0] for name in unknown} == LEFT_OUT
    assert len(CASES) == len(RECORDED) * len(NUMBERS)


@pytest.mark.slow
def test_the_store_answers_as_recorded():
    store = Store(time.time, random.Random(5), b"k")
    different = []
    for count, (kind, path, number) in enumerate(SOME):
        body = body_of(kind, path, number, f"h{count}").encode()
        target = Target(kind, "default" if kind.namespaced else "", "")
        request = HTTPRequest("POST", "/", {"dryRun": "All"}, "", "application/json", body, User("me"), "tests/1")
        try:
            write_requests.create(store, request, target, None)
            code = 201
        except ApiError as error:
            code = error.code
        if code != wanted(kind, path, number):
            different.append((name_of(kind, path), number, code, wanted(kind, path, number)))
    assert different == [], different


class Served:
    """A ``moorage up`` of its own."""

    def __init__(self, home):
        self.process = subprocess.Popen(
            [*PROGRAM, "up", "--nodes", "2", "--emulate", "1.37"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment(MOORAGE_HOME=str(home)),
        )  # fmt: skip
        while not (line := self.process.stdout.readline()).startswith("Ctrl-C"):
            assert line
        config = yaml.safe_load((home / "kubeconfig").read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        (home / "me.pem").write_bytes(b"".join(base64.b64decode(user[f"client-{one}-data"]) for one in ("certificate", "key")))
        tls.load_cert_chain(home / "me.pem")
        self.connection = HTTPSConnection(cluster["server"].removeprefix("https://"), context=tls, timeout=20)

    def ask(self, method, url, body=None, form="application/json"):
        self.connection.request(method, url, body, {"Content-Type": form})
        answer = self.connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.slow
def test_up_answers_and_goes_on(tmp_path):
    """Objects are created, so that the controllers and the scheduler of the cluster meet them, too."""
    up = Served(tmp_path)
    try:
        for count, (kind, path, number) in enumerate(random.Random(SEED).sample(SOME, 150)):
            as_yaml = bool(count % 2) and number not in {"infinite", "nan"}
            body = body_of(kind, path, number, f"h{count}", as_yaml=as_yaml).encode()
            begun = time.monotonic()
            judges_others = kind.kind in {"LimitRange", "ResourceQuota"}
            url = f"{url_of(kind)}?dryRun=All" if judges_others else url_of(kind)
            code, said = up.ask("POST", url, body, "application/yaml" if as_yaml else "application/json")
            took_s = time.monotonic() - begun
            assert code in {wanted(kind, path, number), 409}, (name_of(kind, path), number, code, said)
            assert took_s < 1
        assert up.ask("POST", "/api/v1/namespaces", json.dumps({"metadata": {"name": "calm"}}))[0] == 201
        pod = {"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        assert up.ask("POST", "/api/v1/namespaces/calm/pods", json.dumps(pod))[0] == 201
        end = time.monotonic() + 30
        while "nodeName" not in json.loads(up.ask("GET", "/api/v1/namespaces/calm/pods/plain")[1])["spec"]:
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        up.connection.close()
        up.process.send_signal(signal.SIGTERM)
        said, _ = up.process.communicate(timeout=30)
    assert up.process.returncode == 0
    assert "Traceback" not in said
