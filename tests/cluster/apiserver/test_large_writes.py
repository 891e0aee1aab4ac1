"""Consecutive writes of hundreds of kilobytes over one connection: as bytes on a socket, and by kubectl."""

import asyncio
import json
import os
import shutil
import subprocess

import pytest

from moorage.api.documents.served_kinds import find_kind
from moorage.basis.serving.certificate_authority import make_authority
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.serve import open_store, serving
from tests.kubeconfigs import write_kubeconfig

pytestmark = pytest.mark.slow

TOKENS = {"strong": User("admin", ("system:masters",)), "weak": User("weak")}
PLACE = "/api/v1/namespaces/default/configmaps"


def config_map(name, size, letter="a"):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": letter * size}}


def written(method, path, document, *, chunk=0, token="strong"):
    """Return the bytes of a write, its body in chunks of that size."""
    body = json.dumps(document).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    if not chunk:
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    parts = [body[at : at + chunk] for at in range(0, len(body), chunk)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks + b"0\r\n\r\n"


async def code_of(reader):
    """Read a response, and return its code."""
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    return int(head[9:12])


@pytest.mark.parametrize("at_once", [False, True], ids=["one after the other", "pipelined"])
def test_large_writes_over_one_connection_all_succeed(at_once):
    sizes = [10, 130_000, 600_000, 1_000_000, 70_000, 600_000]
    requests, codes = [], []
    for i, size in enumerate(sizes):
        document = config_map(f"c{i}", size)
        requests += [
            written("POST", PLACE, document, token="weak"),
            written("POST", PLACE, document, chunk=(0, 100_000)[i % 2]),
            written("PUT", f"{PLACE}/c{i}", config_map(f"c{i}", size, "b")),
        ]
        codes += [403, 201, 200]

    async def run():
        store = open_store(seed=1)
        async with serving(store, Authenticator(TOKENS)) as port, asyncio.timeout(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
            if at_once:
                for one in requests:
                    writer.write(one)
                assert [await code_of(reader) for _ in requests] == codes
            else:
                for one, code in zip(requests, codes, strict=True):
                    writer.write(one)
                    assert await code_of(reader) == code
            writer.close()
            for i, size in enumerate(sizes):
                document = store.get(find_kind("configmaps"), "default", f"c{i}").document()
                assert document["data"] == {"x": "b" * size}

    asyncio.run(run())


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_replaces_a_folder_of_large_objects(server_in_a_thread, tmp_path):
    authority, store = make_authority(tmp_path / "pki"), open_store(seed=1)
    folder = tmp_path / "objects"
    folder.mkdir()
    environment = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config")}

    def kubectl(verb, letter):
        for i in range(7):
            (folder / f"c{i}.json").write_text(json.dumps(config_map(f"c{i}", 600_000, letter)))
        done = subprocess.run(
            ["kubectl", verb, "-f", folder], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count("configmap/c") == 7

    with server_in_a_thread(store, authority.tls(), Authenticator(TOKENS)) as port:
        write_kubeconfig(tmp_path / "config", port, "strong", authority.certificate)
        kubectl("create", "a")
        kubectl("replace", "b")
    letters = {store.get(find_kind("configmaps"), "default", f"c{i}").document()["data"]["x"][0] for i in range(7)}
    assert letters == {"b"}
