"""kubeconfig: reading, merging, and one-line errors that name what is wrong."""

import asyncio
import base64
import importlib.util
import json
import os
import re
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from moorage.basis.client.credentials import ExecCommand, ExecCredentials, Identity, TokenFile, proxy_for, run_program
from moorage.basis.client.kubeconfig import ClientEnvironment, in_cluster, read_kubeconfig
from moorage.errors import InputError
from moorage.testing.virtual_time import run_virtually

_spec = importlib.util.spec_from_file_location("certificates", Path(__file__).with_name("certificates.py"))
certificates = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(certificates)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
V1, V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"


def b64(text):
    return base64.b64encode(text.encode()).decode()


def around(env=None, **more):
    return ClientEnvironment(env or {}, clock=lambda: 0.0, wall=lambda: NOW, **more)


def config(cluster=None, user=None, context=None, **top):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", **(context or {})}}],
        **top,
    }


def write(folder, data, name="config"):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    path.chmod(0o600)
    return path


def endpoint(folder, data, context="", **options):
    return read_kubeconfig([write(folder, data)], must_exist=True).endpoint(around(**options), context)


EXEC = {"command": "get-token", "apiVersion": V1, "interactiveMode": "Never"}
NOT_A_PEM = b64("no certificate")

REFUSED = {  # a configuration, what its refusal says
    "empty": (b"", "no configuration has been provided"),
    "only a comment": (b"# nothing\n", "no configuration has been provided"),
    "not YAML": (b"a: [", "config:1: "),
    "binary": (b"\x00\x01\x02", "not UTF-8"),
    "a list": (b"- a\n", "expected a kubeconfig, found a list"),
    "wrong kind": ({"apiVersion": "v1", "kind": "Pod"}, "expected Config of v1, found Pod"),
    "wrong version": ({"apiVersion": "v2", "kind": "Config"}, "found Config of v2"),
    "sections that are no lists": (config(clusters={}, users={"a": 1}), "users: expected a list, found a mapping"),
    "an entry without a name": (config(users=[{"user": {}}]), r"users\[0\]: expected an entry with a name"),
    "a name twice": (config(users=[{"name": "u"}, {"name": "u"}]), r"users\[1\]: the name 'u' is used twice"),
    "an entry that is text": (config(users=[{"name": "u", "user": "x"}]), r"users\[0\].user: expected a mapping, found text"),
    "no context": (config(**{"current-context": ""}), "no context chosen"),
    "an unknown context": (config(**{"current-context": "x"}), "context 'x' does not exist; there are: here"),
    "an unknown cluster": (config(context={"cluster": "x"}), "cluster 'x' does not exist"),
    "no cluster": (config(context={"cluster": ""}), "no cluster was specified"),
    "an unknown user": (config(context={"user": "x"}), "user 'x' does not exist"),
    "no server": (config({"server": ""}), "the cluster has no server defined"),
    "a server that is no URL": (config({"server": "10.0.0.1:6443"}), "must start with http:// or https://"),
    "a file as a server": (config({"server": "file:///etc/passwd"}), "must start with http:// or https://"),
    "a server without a host": (config({"server": "https://"}), "names no host"),
    "a server with a bad port": (config({"server": "https://a:99999"}), "Port out of range"),
    "a server with a query": (config({"server": "https://a/?b"}), "must not have a query"),
    "a bad proxy": (config({"proxy-url": "ftp://p"}), "proxy-url 'ftp://p' cannot be used"),
    "an authority that is not there": (config({"certificate-authority": "no.pem"}), "no.pem: No such file"),
    "an authority not in base64": (config({"certificate-authority-data": "%%"}), "certificate-authority-data is not base64"),
    "an authority not in PEM": (config({"certificate-authority-data": NOT_A_PEM}), "holds no PEM"),
    "a broken authority": (
        config({"certificate-authority-data": b64("-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n")}),
        "the certificate authority of https://10.0.0.1:6443 cannot be used",
    ),
    "an authority twice": (
        config({"certificate-authority": "a", "certificate-authority-data": "b"}), "both given; one of them is enough",
    ),
    "no check and an authority": (
        config({"insecure-skip-tls-verify": True, "certificate-authority-data": b64(certificates.CERTIFICATE)}),
        "insecure-skip-tls-verify and a certificate authority cannot be given together",
    ),
    "a certificate without a key": (
        config(user={"client-certificate-data": b64(certificates.CERTIFICATE)}), "client-key is missing",
    ),
    "a key without a certificate": (config(user={"client-key-data": b64(certificates.KEY)}), "client-certificate is missing"),
    "another certificate's key": (
        config(user={
            "client-certificate-data": b64(certificates.CERTIFICATE), "client-key-data": b64(certificates.OTHER_KEY),
        }),
        "the key does not belong to it",
    ),
    "a certificate that is a folder": (
        config(user={"client-certificate": "."}), "client-certificate .: expected a file, this is a directory",
    ),
    "a name and a password in the address": (
        config({"server": "https://me:geheim@k"}, {"token": "t"}), r"'https://\*\*\*@k' contains a user name or password",
    ),
    "an address of two lines": (config({"server": "https://a\nb"}), "it contains a blank or an unprintable character"),
    "a field of another type": (config(user={"token": 1234567}), r"users\[0\].user.token: expected str, found int$"),
    "an argument that is a list": (config(user={"exec": {**EXEC, "args": [[]]}}), r"exec.args\[0\]: expected int"),
    "two methods": (config(user={"token": "t", "exec": EXEC}), r"more than one authentication method is given \(token, exec\)"),
    "a password": (config(user={"username": "u", "password": "p"}), "username and password are no longer supported"),
    "exec and auth-provider": (config(user={"exec": EXEC, "auth-provider": {"name": "gcp"}}), "auth-provider was removed"),
    "exec without a command": (config(user={"exec": {**EXEC, "command": ""}}), "exec.command must be given"),
    "exec without a version": (config(user={"exec": {**EXEC, "apiVersion": ""}}), "exec.apiVersion '' is not one of"),
    "exec of an old version": (config(user={"exec": {**EXEC, "apiVersion": f"{V1}alpha1"}}), "v1alpha1' is not one of"),
    "exec without a mode": (config(user={"exec": {**EXEC, "interactiveMode": ""}}), "exec.interactiveMode must be given"),
    "exec with an unknown mode": (config(user={"exec": {**EXEC, "interactiveMode": "No"}}), "'No' is not one of Never"),
    "exec that needs a terminal": (config(user={"exec": {**EXEC, "interactiveMode": "Always"}}), "needs a terminal"),
    "exec with a nameless variable": (config(user={"exec": {**EXEC, "env": [{"value": "x"}]}}), "must have a name"),
    "groups without a user": (config(user={"as-groups": ["g"]}), "need a user to act as"),
    "an UID without a user": (config(user={"as-uid": "1"}), "need a user to act as"),
    "extras without a user": (config(user={"as-user-extra": {"a": ["b"]}}), "need a user to act as"),
    "a bad namespace": (config(context={"namespace": "Not_A_Label"}), "namespace 'Not_A_Label' is not a valid namespace name"),
    "a token with a line break": (config(user={"token": "a\nb"}), "token is not a valid bearer token"),
    "a token file that is not there": (config(user={"tokenFile": "nowhere"}), "nowhere: No such file"),
    "a huge file": (b"#" * (5 << 20), "larger than the limit of 4194304 bytes"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "text"), REFUSED.values(), ids=REFUSED)
def test_faults_are_reported_on_one_line(tmp_path, data, text):
    """A fault in the syntax has the lines around it below."""
    with pytest.raises(InputError, match=text) as refusal:
        endpoint(tmp_path, data)
    _, *more = str(refusal.value).splitlines()
    assert all(re.match(r" +\d* \| ", line) for line in more)
    assert str(refusal.value).startswith(str(tmp_path))
    assert certificates.KEY.splitlines()[1] not in str(refusal.value)


def test_all_faults_are_reported_together(tmp_path):
    data = config({"server": "", "certificate-authority-data": "%"}, {"as-uid": "1"}, {"namespace": "A"})
    with pytest.raises(InputError) as refusal:
        endpoint(tmp_path, data)
    assert str(refusal.value).count(";") >= 3


READ = {
    "with a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "with Windows line ends": lambda data: data.replace(b"{", b"{\r\n"),
    "of a mebibyte": lambda data: data[:-1] + b" " * (1 << 20) + b"}",
}


@pytest.mark.parametrize("change", READ.values(), ids=READ)
def test_files_may_be_given_in_many_ways(tmp_path, change):
    assert endpoint(tmp_path, change(json.dumps(config()).encode())).server == "https://10.0.0.1:6443"


SERVERS = {
    "an IPv6 address": ("https://[::1]:6443/", "https://[::1]:6443"),
    "behind a path": ("https://rancher.example/k8s/clusters/c-1", "https://rancher.example/k8s/clusters/c-1"),
    "plain HTTP": ("http://localhost:8080", "http://localhost:8080"),
}


@pytest.mark.parametrize(("server", "used"), SERVERS.values(), ids=SERVERS)
def test_server_addresses(tmp_path, server, used):
    assert endpoint(tmp_path, config({"server": server})).server == used


def test_missing_and_world_readable_files(tmp_path):
    with pytest.raises(InputError, match="nowhere: no such file"):
        read_kubeconfig([tmp_path / "nowhere"], must_exist=True)
    path, warnings = write(tmp_path, config()), []
    path.chmod(0o644)
    read_kubeconfig([path], must_exist=True, warn=warnings.append)
    assert len(warnings) == 1
    assert "others can read" in warnings[0]


def test_the_first_of_several_files_with_a_name_wins(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "ca.pem").write_text(certificates.CERTIFICATE)
    first = write(tmp_path, {"users": [{"name": "u", "user": {"token": "first"}}], "current-context": "here"}, "one")
    second = write(tmp_path / "sub", config({"certificate-authority": "ca.pem"}, {"token": "second"}), "two")
    merged = read_kubeconfig([first, tmp_path / "missing", second], must_exist=False)
    made = merged.endpoint(around())
    assert asyncio.run(made.credentials.identity()) == Identity("first")
    assert made.ca == certificates.CERTIFICATE.encode()
    with pytest.raises(InputError, match="missing: no such file"):
        read_kubeconfig([tmp_path / "missing"], must_exist=False)


def test_a_user_with_every_field(tmp_path):
    user = {
        "client-certificate-data": b64(certificates.CERTIFICATE), "client-key-data": b64(certificates.KEY),
        "as": "jane", "as-groups": ["a", "b"], "as-uid": "7", "as-user-extra": {"scope": ["x"]},
    }  # fmt: skip
    made = endpoint(tmp_path, config({"tls-server-name": "kube", "proxy-url": "http://p:1"}, user, {"namespace": "team"}))
    assert made.headers == (
        ("Impersonate-User", "jane"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"),
        ("Impersonate-Uid", "7"), ("Impersonate-Extra-scope", "x"),
    )  # fmt: skip
    assert (made.server_name, made.proxy, made.namespace) == ("kube", "http://p:1", "team")
    identity = asyncio.run(made.credentials.identity())
    assert identity.certificate == certificates.CERTIFICATE.encode()
    assert "PRIVATE" not in repr(made)


def test_another_context_can_be_selected(tmp_path):
    data = config()
    data["contexts"].append({"name": "there", "context": {"cluster": "c", "namespace": "x"}})
    assert endpoint(tmp_path, data, "there").namespace == "x"


PROXIES = {  # server, environment, proxy
    "none": ("https://a", {}, ""),
    "for https": ("https://a", {"HTTPS_PROXY": "http://p"}, "http://p"),
    "only for http": ("https://a", {"HTTP_PROXY": "http://p"}, ""),
    "in small letters": ("https://a", {"https_proxy": "http://p"}, "http://p"),
    "a host left out": ("https://x.corp", {"HTTPS_PROXY": "http://p", "NO_PROXY": "a, .corp"}, ""),
    "a host that ends alike": ("https://xcorp", {"HTTPS_PROXY": "http://p", "NO_PROXY": "corp"}, "http://p"),
    "a network left out": ("https://10.1.2.3", {"HTTPS_PROXY": "http://p", "NO_PROXY": "10.0.0.0/8"}, ""),
    "all left out": ("https://a", {"HTTPS_PROXY": "http://p", "NO_PROXY": "*"}, ""),
    "this machine": ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://p"}, ""),
}


@pytest.mark.parametrize(("server", "env", "proxy"), PROXIES.values(), ids=PROXIES)
def test_proxies_from_the_environment(server, env, proxy):
    assert proxy_for(server, env) == proxy


# -- token files --------------------------------------------------------------------------------------------------------


def test_a_token_file_is_reread_every_minute_and_after_a_401(tmp_path):
    path = tmp_path / "token"

    async def main():
        credentials = TokenFile(path, asyncio.get_running_loop().time)
        seen = []
        for change in ("one", None, None, "three", "", "gone"):
            if change == "gone":
                path.unlink()
            elif change is not None:
                path.write_text(f"{change}\n")
            else:
                path.write_text("two")
            seen.append((await credentials.identity()).token)
            await asyncio.sleep(31)
        path.write_text("four")
        credentials.invalidate()
        return seen, (await credentials.identity()).token

    assert run_virtually(main()) == (["one", "one", "two", "two", "two", "two"], "four")


@pytest.mark.parametrize("text", [None, "", b"\xff\xfe"])
def test_an_empty_token_file_is_an_error(tmp_path, text):
    path = tmp_path / "token"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match="token file"):
        asyncio.run(TokenFile(path, lambda: 0.0).identity())


def test_the_in_cluster_configuration(tmp_path):
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text(certificates.CERTIFICATE)
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    made = in_cluster(around(env), tmp_path)
    assert made.server == "https://[fd00::1]:443"
    assert asyncio.run(made.credentials.identity()).token == "t"
    with pytest.raises(InputError, match="not in a cluster"):
        in_cluster(around({}), tmp_path)
    (tmp_path / "token").unlink()
    with pytest.raises(InputError, match="token: No such file"):
        in_cluster(around(env), tmp_path)


# -- exec plugins -------------------------------------------------------------------------------------------------------


def answer(version=V1, **status):
    return json.dumps({"kind": "ExecCredential", "apiVersion": version, "status": status}).encode()


def exec_endpoint(folder, printed, asked, monkeypatch, wall=lambda: NOW, **more):
    made = endpoint(folder, config({"server": "https://k", "proxy-url": "http://p"}, {"exec": {**EXEC, **more}}))

    async def run(args, env):
        asked.append((args, dict(env)))
        return printed

    credentials = made.credentials
    assert isinstance(credentials, ExecCredentials)
    monkeypatch.setattr(credentials, "_run", run)
    monkeypatch.setattr(credentials, "_wall", wall)
    return credentials


def test_an_exec_plugin_runs_once_and_gets_the_cluster_information(tmp_path, monkeypatch):
    asked = []
    more = {"args": ["-a", 1], "env": [{"name": "X", "value": "y"}], "provideClusterInfo": True}
    credentials = exec_endpoint(tmp_path, answer(token="t"), asked, monkeypatch, **more)
    assert [asyncio.run(credentials.identity()).token for _ in range(2)] == ["t", "t"]
    ((args, env),) = asked
    assert args == ["get-token", "-a", "1"]
    assert env["X"] == "y"
    info = json.loads(env["KUBERNETES_EXEC_INFO"])
    assert info == {
        "kind": "ExecCredential", "apiVersion": V1,
        "spec": {"interactive": False, "cluster": {"server": "https://k", "proxy-url": "http://p"}},
    }  # fmt: skip


def test_an_exec_plugin_runs_again_after_expiry_or_a_401(tmp_path, monkeypatch):
    asked, now = [], [NOW]
    expires = (NOW + timedelta(minutes=5)).isoformat()
    printed = answer(token="t", expirationTimestamp=expires)
    credentials = exec_endpoint(tmp_path, printed, asked, monkeypatch, wall=lambda: now[0])
    asyncio.run(credentials.identity())
    asyncio.run(credentials.identity())
    assert len(asked) == 1
    credentials.invalidate()
    asyncio.run(credentials.identity())
    assert len(asked) == 2
    now[0] += timedelta(minutes=6)
    with pytest.raises(InputError, match="the credential expired"):
        asyncio.run(credentials.identity())
    assert len(asked) == 3


PRINTED = {
    "nothing": (b"", "not an ExecCredential"),
    "no JSON": (b"token", "not an ExecCredential"),
    "nested too deeply": (b'{"x":' + b"[" * 5000, "not an ExecCredential"),
    "another kind": (b'{"kind":"Pod"}', "got Pod of no version"),
    "another version": (answer(V1BETA1, token="t"), "got ExecCredential of"),
    "no status": (json.dumps({"kind": "ExecCredential", "apiVersion": V1}).encode(), "expected an ExecCredential"),
    "an empty status": (answer(), "neither a token nor a certificate"),
    "a certificate alone": (answer(clientCertificateData="x"), "must come together"),
    "an expired token": (answer(token="t", expirationTimestamp="2020-01-01T00:00:00Z"), "expired at 2020-01-01"),
}


@pytest.mark.parametrize(("printed", "text"), PRINTED.values(), ids=PRINTED)
def test_invalid_exec_plugin_output(tmp_path, monkeypatch, printed, text):
    credentials = exec_endpoint(tmp_path, printed, [], monkeypatch)
    with pytest.raises(InputError, match=text) as refusal:
        asyncio.run(credentials.identity())
    assert "exec plugin get-token" in str(refusal.value)


def test_an_untrusted_configuration_runs_no_programs(tmp_path):
    with pytest.raises(InputError, match="exec is not allowed here"):
        endpoint(tmp_path, config(user={"exec": EXEC}), may_exec=False)


def test_v1beta1_needs_no_interactive_mode(tmp_path):
    user = {"exec": {"command": "x", "apiVersion": V1BETA1}}
    assert isinstance(endpoint(tmp_path, config(user=user)).credentials, ExecCredentials)


PROGRAMS = {
    "fails": ("import sys; sys.exit(3)", "failed with exit status 3"),
    "prints without end": ("while True: print('x' * 65536)", "printed more than 1048576 bytes"),
    "prints 100 MB and stays": (
        "import os, time; [os.write(1, bytes(1 << 20)) for i in range(100)]; time.sleep(60)", "printed more than 1048576 bytes",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("program", "text"), PROGRAMS.values(), ids=PROGRAMS)
def test_misbehaving_exec_plugins(program, text):
    with pytest.raises(InputError, match=text):
        asyncio.run(run_program([sys.executable, "-c", program], os.environ))


def runs(pid):
    """Return whether a process still runs after a moment; an ended one may wait for its parent."""
    status = Path("/proc", pid, "status")
    for _ in range(50):
        try:
            if "\nState:\tZ" in status.read_text():
                return False
        except OSError:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.slow
def test_a_hanging_exec_plugin_is_killed_with_its_children(monkeypatch, tmp_path):
    monkeypatch.setattr("moorage.basis.client.credentials._EXEC_S", 2.0)
    with pytest.raises(InputError, match="did not end within"):
        asyncio.run(run_program(["sh", "-c", f"sleep 60 & echo $! > {tmp_path / 'pid'}; wait"], os.environ))
    assert not runs((tmp_path / "pid").read_text().strip())


def test_waiters_of_a_failing_exec_plugin_get_its_error_at_once():
    asked = []

    async def run(args, env):
        asked.append(args)
        await asyncio.sleep(30)
        raise InputError("no")

    async def main():
        credentials = ExecCredentials(ExecCommand("get-token"), {}, lambda: NOW, run)
        first = await asyncio.gather(*(credentials.identity() for _ in range(20)), return_exceptions=True)
        again = await asyncio.gather(credentials.identity(), return_exceptions=True)
        return {str(error) for error in first + again}, asyncio.get_running_loop().time()

    said, ended = run_virtually(main())
    assert said == {"exec plugin get-token: no"}
    assert len(asked) == 2
    assert ended == pytest.approx(60, abs=1)


@pytest.mark.slow
def test_exec_plugins_run_as_processes(tmp_path):
    with pytest.raises(InputError, match="cannot be run: No such file"):
        asyncio.run(run_program([str(tmp_path / "nothing")], {}))
    shown = asyncio.run(run_program([sys.executable, "-c", "import os; print(os.environ['A'])"], {"A": "b"}))
    assert msgspec.json.decode(b'"' + shown.strip() + b'"') == "b"
