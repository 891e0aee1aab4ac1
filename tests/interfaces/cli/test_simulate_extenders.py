"""``moorage simulate`` with extenders: extenders are called only on request, and none ever binds."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
CLUSTER = "\n---\n".join(
    [
        *(
            f"{{apiVersion: v1, kind: Node, metadata: {{name: n{at}}}, status: {{allocatable: {{cpu: 4, pods: 10}}}}}}"
            for at in range(3)
        ),
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}",
    ]
)


class Extender:
    def __init__(self):
        self.replies = {"/filter": {"NodeNames": ["n1"]}}
        self.asked = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                outer.asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
                reply = outer.replies.get(self.path)
                body = b"" if reply is None else json.dumps(reply).encode()
                self.send_response(500 if reply is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *given):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"


@pytest.fixture
def extender():
    extender = Extender()
    thread = threading.Thread(target=extender.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield extender
    extender.server.shutdown()
    thread.join()
    extender.server.server_close()


@pytest.fixture
def simulated(moorage, tmp_path, extender):
    def run(*options, **fields):
        settings = {"urlPrefix": extender.url, "filterVerb": "filter", "nodeCacheCapable": True, **fields}
        file = tmp_path / "config.yaml"
        file.write_text(CONFIG + json.dumps({"extenders": [settings]})[1:-1])
        return moorage("simulate", "-f", "-", "-o", "json", "--config", file, *options, stdin=CLUSTER.encode())

    return run


def test_extenders_are_called_only_on_request(simulated, extender):
    ran = simulated()
    assert (ran.status, ran.out, extender.asked) == (1, "", [])
    assert f"1 extender configured ({extender.url}), and a simulation calls extenders only on request" in ran.err
    assert "--extenders=ask" in ran.err
    assert "--extenders=skip" in ran.err


def test_extenders_can_be_disabled(simulated, extender):
    ran = simulated("--extenders", "skip")
    report = json.loads(ran.out)
    assert (ran.status, extender.asked) == (0, [])
    assert [note["text"] for note in report["notes"] if note["kind"] == "Extenders"] == ["1 extender skipped, as requested"]


def test_an_extender_filters_and_scores(simulated, extender):
    ran = simulated("--extenders", "ask", bindVerb="bind")
    assert [pod["node"] for pod in json.loads(ran.out)["pods"]] == ["n1"]
    ((path, body),) = extender.asked  # it is not told to bind: that would be a pod of the real cluster
    assert (path, sorted(body["NodeNames"])) == ("/filter", ["n0", "n1", "n2"])


def test_extender_node_messages_are_the_reported_reasons(simulated, extender):
    extender.replies["/filter"] = {"NodeNames": [], "FailedNodes": {"n0": "too dear", "n1": "too dear", "n2": "too far"}}
    ran = simulated("--extenders", "ask")
    assert ran.status == 2
    assert json.loads(ran.out)["pods"][0]["message"].startswith("0/3 nodes are available: 1 too far, 2 too dear.")


def test_a_failed_extender_fails_the_pod_or_is_noted(simulated, extender):
    del extender.replies["/filter"]
    ran = simulated("--extenders", "ask")
    text = f"failed filter with extender at URL {extender.url}filter, code 500"
    assert (ran.status, json.loads(ran.out)["pods"][0]["message"]) == (2, text)
    report = json.loads(simulated("--extenders", "ask", ignorable=True).out)
    assert report["pods"][0]["node"]
    (note,) = [note["text"] for note in report["notes"] if note["kind"] == "Extenders"]
    assert note == f"extender {extender.url} failed in filter and was skipped: {text} (1 time)"
