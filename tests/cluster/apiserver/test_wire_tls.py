"""Connections like those of Go's HTTP client: strict certificate checks, HTTP/2 offered, keep-alive and reuse."""

import gc
import json
import socket
import ssl

import pytest

from moorage.basis.serving.certificate_authority import SCHEDULER, make_authority
from moorage.cluster.apiserver.access.authentication import make_authenticator
from moorage.cluster.apiserver.http.serve import open_store

STRICT = getattr(ssl, "VERIFY_X509_STRICT", 0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, server_in_a_thread):
    """Yield a port, and a factory of TLS contexts with the scheduler's certificate."""
    home = tmp_path_factory.mktemp("tls")
    authority, store = make_authority(home / "pki"), open_store(seed=1)
    issued = authority.issue(SCHEDULER)
    (home / "client.pem").write_bytes(issued.certificate + issued.key)

    def context(version=None):
        made = ssl.create_default_context(cadata=authority.certificate.decode())
        made.verify_flags |= STRICT
        made.set_alpn_protocols(["h2", "http/1.1"])
        made.load_cert_chain(home / "client.pem")
        if version is not None:
            made.minimum_version = made.maximum_version = version
        return made

    tls = authority.tls()
    tls.verify_flags |= STRICT  # as Python 3.13 and later have it
    with server_in_a_thread(store, tls, make_authenticator(store, authority)) as port:
        yield port, context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda one: one.name)
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_http_1_1_is_used_and_http_2_is_not(cluster, version, name):
    port, context = cluster
    with context(version).wrap_socket(socket.create_connection(("127.0.0.1", port), 5), server_hostname=name) as line:
        assert line.version() == version.name.replace("_", ".")
        assert line.selected_alpn_protocol() in {None, "http/1.1"}  # Go speaks HTTP/1.1 then


def test_a_client_certificate_needs_no_token(cluster, go_client):
    port, context = cluster
    client = go_client.GoClient(port, "", context=context())
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}}
    answer = client.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    client.close()
    assert answer.document["status"]["userInfo"]["username"] == "system:kube-scheduler"


def test_hundreds_of_requests_use_one_connection(cluster, go_client):
    port, context = cluster
    client = go_client.GoClient(port, "", context=context())
    client.ask("GET", "/version")
    own = client.address
    for _ in range(200):
        assert client.ask("GET", "/api/v1/nodes", limit=500, resourceVersion=0).status == 200
    assert client.address == own
    client.close()


def exchanged(cluster, sent, answers):
    """Send bytes over a new connection, and return the status lines and bodies of the given number of responses."""
    port, context = cluster
    found = []
    with context().wrap_socket(socket.create_connection(("127.0.0.1", port), 5), server_hostname="localhost") as line:
        line.sendall(sent)
        read = line.makefile("rb")
        for _ in range(answers):
            first, length = read.readline().decode().strip(), 0
            while header := read.readline().decode().strip():
                name, _, value = header.partition(": ")
                length = int(value) if name.lower() == "content-length" else length
            found.append((first, json.loads(read.read(length))))
        return found


def head(method, path, port, *headers):
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *headers, "", ""]).encode()


def test_pipelined_requests_are_answered_in_order(cluster):
    port, _ = cluster
    paths = ["/api/v1/nodes", "/api/v1/pods", "/api/v1/services"]
    answers = exchanged(cluster, b"".join(head("GET", path, port) for path in paths), 3)
    assert [body["kind"] for _, body in answers] == ["NodeList", "PodList", "ServiceList"]


def test_bodies_may_be_chunked(cluster):
    port, _ = cluster
    review = json.dumps({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                         "spec": {"user": "x", "nonResourceAttributes": {"path": "/", "verb": "get"}}}).encode()  # fmt: skip
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (review[:7], review[7:])) + b"0\r\n\r\n"
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    asked = head("POST", path, port, "Content-Type: application/json", "Transfer-Encoding: chunked")
    ((first, body),) = exchanged(cluster, asked + pieces, 1)
    assert (first, body["status"]["allowed"]) == ("HTTP/1.1 201 Created", False)


def test_older_versions_of_tls_are_rejected(cluster):
    port, context = cluster
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old = context(ssl.TLSVersion.TLSv1_1)
    line = socket.create_connection(("127.0.0.1", port), 5)
    with line, pytest.raises(ssl.SSLError):
        old.wrap_socket(line, server_hostname="localhost")


@pytest.mark.slow
def test_a_client_that_leaves_during_the_handshake_is_closed_before_the_server_ends(tmp_path, server_in_a_thread):
    """A leaked connection causes a warning in the garbage collector, and warnings are errors here."""
    authority, store = make_authority(tmp_path / "pki"), open_store(seed=1)
    with server_in_a_thread(store, authority.tls(), make_authenticator(store, authority)) as port:
        for _ in range(20):
            socket.create_connection(("127.0.0.1", port), 5).close()
    gc.collect()
