"""Untrusted kubeconfigs: any content gives an endpoint or one of our errors, quickly."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.basis.client.credentials import Endpoint, ExecCommand, ExecCredentials
from moorage.basis.client.kubeconfig import ClientEnvironment, read_kubeconfig
from moorage.errors import InputError
from tests.interfaces.cli.hostile import EVIL, check_harmless

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AROUND = ClientEnvironment({"HTTPS_PROXY": "http://p:1"}, clock=lambda: 0.0, wall=lambda: NOW)
EXEC = {
    "apiVersion": "client.authentication.k8s.io/v1", "command": "nothing", "args": ["a"], "interactiveMode": "Never",
    "env": [{"name": "A", "value": "b"}], "installHint": "get it", "provideClusterInfo": True,
}  # fmt: skip
CLUSTER = {
    "server": "https://127.0.0.1:1", "certificate-authority": "ca", "certificate-authority-data": "QQ==",
    "tls-server-name": "x", "insecure-skip-tls-verify": True, "proxy-url": "http://p:1",
    "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"a": 1}}],
}  # fmt: skip
USER = {
    "exec": EXEC, "token": "t", "tokenFile": "f", "client-certificate": "c", "client-key": "k",
    "client-certificate-data": "QQ==", "client-key-data": "QQ==",
    "username": "u", "password": "p", "auth-provider": {"name": "gcp"}, "as": "me", "as-uid": "1",
    "as-groups": ["g"], "as-user-extra": {"k": ["v"]},
}  # fmt: skip
TEXTS = st.sampled_from(
    [
        EVIL,
        "",
        "a",
        "c",
        "-",
        "QUFB",
        "/dev/zero",
        "/",
        "..",
        "\0",
        "https://[",
        "https://a:b@c",
        "http://a:99999",
        "https://é/?#",
        "-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----",
        "x" * 5000,
        "client.authentication.k8s.io/v1beta1",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(SCALARS, lambda inside: st.lists(inside, max_size=3) | st.dictionaries(TEXTS, inside, max_size=3))


def some_of(whole):
    """Draw some of a mapping's entries, unchanged or replaced."""
    return st.fixed_dictionaries({}, optional={name: st.just(value) | VALUES for name, value in whole.items()})


def entries(inner, data):
    entry = st.fixed_dictionaries({"name": st.just("c") | VALUES, inner: data | VALUES})
    return st.lists(entry | VALUES, max_size=3)


CONFIGS = st.fixed_dictionaries(
    {
        "current-context": st.just("c") | VALUES,
        "clusters": entries("cluster", some_of(CLUSTER)) | st.just([{"name": "c", "cluster": {"server": "https://a"}}]),
        "users": entries("user", some_of(USER) | some_of({"exec": EXEC})) | st.just([]),
        "contexts": entries("context", some_of({"cluster": "c", "user": "c", "namespace": "n"}))
        | st.just([{"name": "c", "context": {"cluster": "c", "user": "c"}}]),
    },
    optional={"apiVersion": VALUES, "kind": VALUES, "preferences": VALUES},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kubeconfigs")


def endpoint_of(folder, text):
    path = Path(folder, "config")
    path.write_bytes(text)
    return read_kubeconfig([path], must_exist=True).endpoint(AROUND)


@pytest.mark.slow
@settings(max_examples=125)
@given(CONFIGS)
def test_an_endpoint_or_a_one_line_error(folder, config):
    try:
        made = endpoint_of(folder, json.dumps(config).encode())
    except InputError as error:
        check_harmless(str(error))
        return
    assert isinstance(made, Endpoint)
    assert made.server.startswith(("http://", "https://"))
    if not isinstance(made.credentials, ExecCredentials):
        try:
            asyncio.run(made.credentials.identity())
        except InputError as error:
            check_harmless(str(error))


@given(st.binary(max_size=200) | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_arbitrary_bytes(folder, text):
    try:
        endpoint_of(folder, text)
    except InputError as error:
        check_harmless(str(error))


STATUS = {"token": "t", "clientCertificateData": "c", "clientKeyData": "k", "expirationTimestamp": "2030-01-01T00:00:00Z"}
ANSWERS = some_of({"apiVersion": EXEC["apiVersion"], "kind": "ExecCredential", "status": STATUS}) | st.fixed_dictionaries(
    {"apiVersion": st.just(EXEC["apiVersion"]), "kind": st.just("ExecCredential"), "status": some_of(STATUS)}
)


@given(ANSWERS.map(lambda answer: json.dumps(answer).encode()) | st.binary(max_size=50))
def test_arbitrary_exec_plugin_output(printed):
    async def run(args, env):
        return printed

    credentials = ExecCredentials(ExecCommand(f"x{EVIL}", install_hint=EVIL), {}, lambda: NOW, run)
    try:
        asyncio.run(credentials.identity())
    except InputError as error:
        check_harmless(str(error))


SIZED = {  # much of the same, by how often
    "documents": lambda count: b"---\n" * count,
    "documents of JSON": lambda count: b"{}" * count,
    "entries": lambda count: b"clusters:\n" + b"".join(b"- {name: x%d}\n" % i for i in range(count)),
    "entries of JSON": lambda count: json.dumps({"users": [{"name": f"u{i}"} for i in range(count)]}).encode(),
    "keys": lambda count: b"".join(b"k%d: 1\n" % i for i in range(count)),
    "list items": lambda count: b"clusters: [" + b"a," * count + b"]",
    "base64": lambda count: json.dumps(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://a", "certificate-authority-data": "QUFB" * count}}],
        }
    ).encode(),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", SIZED.values(), ids=SIZED)
def test_run_time_grows_linearly(folder, make):
    def took(count):
        text, best = make(count), float("inf")
        for _ in range(3):
            begun = time.process_time()
            with pytest.raises(InputError):
                endpoint_of(folder, text)
            best = min(best, time.process_time() - begun)
        return best

    assert took(8000) < 10 * took(2000) + 0.05
