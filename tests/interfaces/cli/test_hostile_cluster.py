"""Hostile expressions in a cluster that ``moorage up`` serves or ``moorage run`` schedules.

Each is answered soon, the pods of others are placed meanwhile, and the web interface answers questions about it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import subprocess
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml

from tests.api.cel.hostile_values import scale
from tests.interfaces.cli.conftest import PROGRAM, environment
from tests.interfaces.cli.test_run import running

pytestmark = pytest.mark.slow

#: The CPU time that a request may take, or an attempt to place a pod.
MOST_S = 1.0
A = f"'{'a' * 40}'"
TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
SELECTORS = {  # what the API server accepts, as kube-apiserver does
    "a huge quantity compared": "quantity('1e999999999').isGreaterThan(quantity('1'))",
    "a huge sum": "quantity('1e999999999').add(1).isGreaterThan(quantity('1'))",
    "a huge difference": "quantity('1e-999999999').sub(quantity('9e99999999')).isLessThan(quantity('1'))",
    "a huge integer": "quantity('9e999999999').asInteger() > 0",
    "a huge double": "quantity('9e999999999').asApproximateFloat() > 0.0",
    "a pattern with two stars": f"{A}.matches('^(a*)*b$')",
    "a pattern with groups": f"{A}.find('(.*)(.*)(.*)(.*)y') == ''",
    "an endless precision": "'%.999999f'.format([1.0]).size() > 0",
    "a list in a list in a list": "cel.bind(a, [1, 2], " + "".join(f"cel.bind({'abcdefghijklmnopqrs'[at + 1]}, "
        f"[{'abcdefghijklmnopqrs'[at]}, {'abcdefghijklmnopqrs'[at]}], " for at in range(18)) + "s == [r, r]" + ")" * 19,
    "an integer beyond its bits": "9223372036854775807 + 1 > 0",
    "a long address": f"ip('{'1:' * 2000}').isUnspecified()",
    "a long URL": f"url('http://a/{'%41' * 2000}').getHost() == ''",
    "thousands of negations": "!" * 4000 + "true",
    "steps that cost nothing": f"{TEN}.all(a, {TEN}.all(b, {TEN}.all(c, {' && '.join(['(true ? true : false)'] * 99)})))",
}  # fmt: skip
LONG = {"l": list(range(20_000))}
RULES = {  # rules of an object with a list of 20,000 numbers
    "a huge quantity compared": "quantity('1e999999999').isGreaterThan(quantity('1'))",
    "lists compared in a fold": "self.l.all(x, self.l == self.l)",
    "a fold in a fold": "self.l.all(x, self.l.all(y, x + y >= 0))",
    "a list built": "self.l.map(x, self.l).size() > 0",
    "steps that cost nothing": f"self.l.all(x, {' && '.join(['(true ? true : false)'] * 99)})",
    "absorbed errors": f"self.l.all(x, {' || '.join(['1 / 0 > 0'] * 50)} || true)",
    "lookups that cost nothing": f"self.l.all(x, {' || '.join(['1 in [0]'] * 99)} || true)",
}
SLICE = {
    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s1"},
    "spec": {
        "driver": "gpu.example.com", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"d{at}", "capacity": {"memory": {"value": "40Gi"}}} for at in range(60)],
    },
}  # fmt: skip
CLASSES, CLAIMS = "/apis/resource.k8s.io/v1/deviceclasses", "/apis/resource.k8s.io/v1/namespaces/hostile/resourceclaims"
GOOD, BAD = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/hostile/pods"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def hostile_objects(name, expression):
    """Return the path and the document of a device class, a claim, a pod that asks for it, and a pod of someone else."""
    yield CLASSES, {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
    request = {"name": "a", "exactly": {"deviceClassName": name}}
    yield CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    claims = [{"name": "c", "resourceClaimName": name}]
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "c"}]}}
    yield BAD, {"metadata": {"name": name}, "spec": {"resourceClaims": claims, "containers": [container]}}
    yield GOOD, {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def cpu_of(pid):
    """Return the CPU time of a process and of those that it has ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Up:
    """A running ``moorage up``, with requests that measure its CPU time."""

    def __init__(self, home):
        self.process = subprocess.Popen(
            [*PROGRAM, "up", "--nodes", "3"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment(MOORAGE_HOME=str(home)),
        )  # fmt: skip
        while not (line := self.process.stdout.readline()).startswith("Ctrl-C"):
            assert line
        self.process.stdout.close()
        config = yaml.safe_load((home / "kubeconfig").read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server = cluster["server"]
        self.tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        (home / "me.pem").write_bytes(b"".join(base64.b64decode(user[f"client-{one}-data"]) for one in ("certificate", "key")))
        self.tls.load_cert_chain(home / "me.pem")

    def ask(self, method, path, document=None):
        """Return the code, the document and the CPU time of a request."""
        body = None if document is None else json.dumps(document).encode()
        headers = {"Content-Type": "application/json"}
        begun = cpu_of(self.process.pid)
        try:
            with urlopen(Request(self.server + path, body, headers, method=method), context=self.tls, timeout=60) as answer:
                code, said = answer.status, answer.read()
        except HTTPError as error:
            code, said = error.code, error.read()
        return code, json.loads(said), cpu_of(self.process.pid) - begun

    def until(self, path, holds):
        end = time.monotonic() + 60
        while not holds(found := self.ask("GET", path)[1]):
            assert time.monotonic() < end, found
            time.sleep(0.05)
        return found


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    cluster = Up(tmp_path_factory.mktemp("up"))
    assert cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "hostile"}})[0] == 201
    node = cluster.ask("GET", "/api/v1/nodes")[1]["items"][0]["metadata"]["name"]
    slice_ = {**SLICE, "spec": {**SLICE["spec"], "nodeName": node}}
    assert cluster.ask("POST", "/apis/resource.k8s.io/v1/resourceslices", slice_)[0] == 201
    yield cluster
    cluster.process.terminate()
    assert cluster.process.wait(60) == 0


def is_bound(pod):
    return bool(pod["spec"].get("nodeName"))


def is_judged(pod):
    return any(one["type"] == "PodScheduled" for one in pod["status"].get("conditions", ()))


@pytest.mark.parametrize("number", range(len(SELECTORS)), ids=SELECTORS)
def test_up_places_the_pods_of_others(up, number):
    name, most = f"s{number}", MOST_S * scale()
    before = cpu_of(up.process.pid)
    for path, document in hostile_objects(name, [*SELECTORS.values()][number]):
        code, answer, took = up.ask("POST", path, document)
        assert (code, took < most) == (201, True), (answer, took)
    up.until(f"{GOOD}/{name}", is_bound)
    up.until(f"{BAD}/{name}", is_judged)
    assert cpu_of(up.process.pid) - before < 3 * most
    assert up.ask("GET", "/version")[0] == 200


@pytest.mark.parametrize("number", range(len(RULES)), ids=RULES)
def test_up_answers_about_hostile_rules(up, number):
    plural, most = f"widget{number}s", MOST_S * scale()
    lists = {"l": {"type": "array", "maxItems": 20_000, "items": {"type": "integer"}}}
    spec = {
        "type": "object", "properties": lists,
        "x-kubernetes-validations": [{"rule": [*RULES.values()][number], "message": "no"}] * 5,
    }  # fmt: skip
    version = {
        "name": "v1", "served": True, "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }  # fmt: skip
    names = {"plural": plural, "kind": f"Widget{number}"}
    definition = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    code, answer, took = up.ask(
        "POST", DEFINITIONS, {**head, "metadata": {"name": f"{plural}.example.com"}, "spec": definition}
    )
    assert took < most
    if code == 422:  # as kube-apiserver refuses rules that may cost too much
        assert "cost" in answer["message"]
        return
    assert code == 201, answer
    up.until(f"{DEFINITIONS}/{plural}.example.com", lambda found: bool(found["status"].get("conditions")))
    widget = {"apiVersion": "example.com/v1", "kind": f"Widget{number}", "metadata": {"name": "w"}, "spec": LONG}
    code, answer, took = up.ask("POST", f"/apis/example.com/v1/{plural}", widget)
    assert code in {201, 422}, answer
    assert took < 2 * most  # with the rules of an object
    assert up.ask("GET", "/version")[2] < most


ASKED = {  # a selector → what the page says about the pod
    "a huge sum": "a sum or difference has 1000000000 digits",
    "a huge quantity compared": "hostile/asked1",  # the selector is true, and the pod may be placed
}


@pytest.mark.parametrize(("number", "says"), [*enumerate(ASKED.values())], ids=ASKED)
def test_questions_about_the_hostile_cluster_are_answered(up, number, says):
    for path, document in hostile_objects(f"asked{number}", SELECTORS[[*ASKED][number]]):
        up.ask("POST", path, document)
    code, asked, _ = up.ask("POST", "/lab/v1/questions", {"question": {"explain": f"hostile/asked{number}"}})
    assert code in {200, 202}, asked
    assert up.ask("GET", "/version")[0] == 200
    if "id" in asked:
        asked = up.until(f"/lab/v1/questions/{asked['id']}", lambda found: found.get("state") != "running")
    assert says in json.dumps(asked)


def test_run_places_the_pods_of_others(tmp_path):
    async def main():
        async with running(tmp_path) as world:
            await world.rest.send("POST", "/api/v1/namespaces", json.dumps({"metadata": {"name": "hostile"}}).encode())
            for name in ("n1", "n2", "n3"):  # each has room for ten pods
                await world.node(name)
            slice_ = {**SLICE, "spec": {**SLICE["spec"], "nodeName": "n1"}}
            await world.rest.send("POST", "/apis/resource.k8s.io/v1/resourceslices", json.dumps(slice_).encode())
            for number, expression in enumerate(SELECTORS.values()):
                for path, document in hostile_objects(f"s{number}", expression):
                    await world.rest.send("POST", path, json.dumps(document).encode())
            for number in range(len(SELECTORS)):
                await asyncio.wait_for(bound(world.rest, f"{GOOD}/s{number}"), 60)
            spent = cpu_of(world.process.pid)
            return spent, await world.end()

    spent, status = asyncio.run(main())
    assert status == 0
    assert spent < (5 + len(SELECTORS) * MOST_S) * scale()


async def bound(rest, path):
    while not is_bound(json.loads(await rest.get(path))):
        await asyncio.sleep(0.05)
