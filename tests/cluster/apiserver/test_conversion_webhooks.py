"""Definitions with a conversion webhook: which objects need it, what it may answer, and what is said if it cannot be called."""

import base64
import copy
import json
import ssl
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from moorage.live.server.certificates import self_signed
from tests.cluster.apiserver.custom_kinds import DEFINITIONS, MERGE, WIDGETS, ask, define, definition, widget

OLD = WIDGETS.replace("/v1/", "/v1beta1/")
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
OLDER = {"name": "v1beta1", "served": True, "storage": False, "schema": {"openAPIV3Schema": FREE}}


def converting(config, *, older=True, reviews=("v1",)):
    made = definition(FREE)
    webhook = {"clientConfig": config, "conversionReviewVersions": [*reviews]}
    made["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    made["spec"]["versions"] += [copy.deepcopy(OLDER)] * older
    return made


def renamed(document, wanted):
    """Convert a widget: ``size`` of v1 is ``length`` of v1beta1."""
    made = {**document, "apiVersion": wanted, "spec": dict(document.get("spec") or {})}
    old, new = ("size", "length") if wanted.endswith("beta1") else ("length", "size")
    if old in made["spec"]:
        made["spec"][new] = made["spec"].pop(old)
    return made


class Webhook:
    """A webhook on the loopback network; ``change`` spoils its answers."""

    def __init__(self, key_file):
        self.calls, self.change = [], lambda review: review
        made = self_signed("127.0.0.1", datetime.now(UTC))
        key_file.write_bytes(made.key + made.certificate)
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
                webhook.calls.append(request)
                converted = [renamed(one, request["desiredAPIVersion"]) for one in request["objects"]]
                response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": converted}
                review = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}
                body = json.dumps(webhook.change(review)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(key_file)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.config = {
            "url": f"https://127.0.0.1:{self.server.server_port}/convert",
            "caBundle": base64.b64encode(made.certificate).decode(),
        }


@pytest.fixture
def hook(tmp_path):
    made = Webhook(tmp_path / "key.pem")
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def test_one_version_needs_no_webhook(store):
    define(store, converting({"service": {"name": "hook", "namespace": "default", "path": "/convert"}}, older=False))
    assert ask(store, "POST", WIDGETS, widget("a", spec={"size": 2}))[0] == 201
    assert ask(store, "GET", f"{WIDGETS}/a")[1]["spec"] == {"size": 2}


def test_objects_of_the_storage_version_need_no_webhook_and_others_are_told_what_would_work(store):
    define(store, converting({"service": {"name": "hook", "namespace": "default", "path": "/convert"}}))
    assert ask(store, "POST", WIDGETS, widget("a", spec={"size": 2}))[0] == 201
    assert ask(store, "PATCH", f"{WIDGETS}/a", {"spec": {"size": 3}}, form=MERGE)[0] == 200
    for method, path, body in (
        ("GET", f"{OLD}/a", None),
        ("GET", OLD, None),
        ("POST", OLD, {**widget("b"), "apiVersion": "example.com/v1beta1"}),
    ):
        code, told = ask(store, method, path, body)
        assert code == 500, told
        assert "conversion webhook for example.com/v1" in told["message"]
        assert 'Post "https://hook.default.svc:443/convert"' in told["message"]
        assert "write objects in the storage version" in told["message"]
    assert [one["metadata"]["name"] for one in ask(store, "GET", WIDGETS)[1]["items"]] == ["a"]
    assert ask(store, "DELETE", f"{WIDGETS}/a")[0] == 200


@pytest.mark.slow
def test_a_webhook_converts_what_is_written_and_read(store, hook):
    define(store, converting(hook.config))
    sent = {**widget("a", spec={"length": 2}), "apiVersion": "example.com/v1beta1"}
    code, made = ask(store, "POST", OLD, sent)
    assert (code, made["spec"], made["apiVersion"]) == (201, {"length": 2}, "example.com/v1beta1")
    assert ask(store, "GET", f"{WIDGETS}/a")[1]["spec"] == {"size": 2}
    assert ask(store, "PATCH", f"{OLD}/a", {"spec": {"length": 5}}, form=MERGE)[1]["spec"] == {"length": 5}
    assert ask(store, "GET", f"{WIDGETS}/a")[1]["spec"] == {"size": 5}
    calls = len(hook.calls)
    assert [one["spec"] for one in ask(store, "GET", OLD)[1]["items"]] == [{"length": 5}]
    assert ask(store, "GET", OLD)[1]["items"][0]["metadata"]["uid"] == made["metadata"]["uid"]
    assert len(hook.calls) - calls <= 1, "what was converted is remembered"


SPOILT = {
    "a refusal": (
        lambda review: review["response"].update(result={"status": "Failure", "message": "no such size"}), "no such size",
    ),
    "another request": (lambda review: review["response"].update(uid="x"), "expected response.uid="),
    "no objects": (lambda review: review["response"].update(convertedObjects=[]), "returned 0 objects, expected 1"),
    "another name": (
        lambda review: review["response"]["convertedObjects"][0]["metadata"].update(name="b"),
        "must have the same name: a != b",
    ),
    "another version": (
        lambda review: review["response"]["convertedObjects"][0].update(apiVersion="example.com/v3"),
        "invalid groupVersion (expected example.com/v1beta1, received example.com/v3)",
    ),
    "no review": (lambda review: review.clear(), "expected webhook response of apiextensions.k8s.io/v1"),
    "no metadata": (
        lambda review: review["response"]["convertedObjects"][0].pop("metadata"), "missing metadata in converted object",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("spoil", "why"), SPOILT.values(), ids=SPOILT)
def test_a_wrong_answer_is_an_error(store, hook, spoil, why):
    define(store, converting(hook.config))
    assert ask(store, "POST", WIDGETS, widget("a", spec={"size": 2}))[0] == 201
    hook.change = lambda review: (spoil(review), review)[1]
    code, told = ask(store, "GET", f"{OLD}/a")
    assert (code, why in told["message"]) == (500, True), told
    assert ask(store, "GET", f"{WIDGETS}/a")[0] == 200


def test_a_webhook_that_nobody_serves(store):
    define(store, converting({"url": "https://127.0.0.1:1/convert"}))
    assert ask(store, "POST", WIDGETS, widget("a"))[0] == 201
    code, told = ask(store, "GET", f"{OLD}/a")
    assert (code, 'failed: Post "https://127.0.0.1:1/convert": ' in told["message"]) == (500, True), told
    assert ask(store, "GET", DEFINITIONS)[0] == 200
