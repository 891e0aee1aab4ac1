"""``moorage run`` as a user starts it: a process, on the embedded API server, asked over TLS."""

import asyncio
import contextlib
import errno
import io
import json
import os
import random
import re
import signal
import socket
import ssl
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import ClientSession, TCPConnector

from moorage.basis.client.credentials import Endpoint, FixedCredentials, Identity
from moorage.basis.client.rest import Rest
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.serve import serving
from moorage.interfaces.cli.live.release_flags import FLAGS
from moorage.interfaces.cli.main import _run
from moorage.interfaces.cli.pflag import read_flags
from moorage.rules.store.store import Store
from tests.kubeconfigs import write_kubeconfig
from tests.live.server.metric_specs import NEVER_MOVED, SPECS
from tests.ports import reserve_port

SOURCES = Path(__file__).resolve().parents[3] / "src"
USERS = {"admin-token": User("admin", ("system:masters",)), "reader-token": User("reader")}


class World:
    """The API server, a scheduler process, and what it has said."""

    def __init__(self, rest, process, said):
        self.rest, self.process, self.said = rest, process, said

    async def create(self, path, kind, name, api_version="v1", **fields):
        body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}
        await self.rest.send("POST", path, json.dumps(body).encode())

    async def node(self, name, cpu="2"):
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
        await self.create("/api/v1/nodes", "Node", name, status={"allocatable": amounts, "capacity": amounts})

    async def pod(self, name, cpu="1"):
        containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
        await self.create("/api/v1/namespaces/default/pods", "Pod", name, spec={"containers": containers})

    async def until(self, text, count=1):
        """Wait until a text was said so often; return those lines."""
        try:
            async with asyncio.timeout(60):
                while True:
                    found = [line for line in self.said if text in line]
                    if len(found) >= count:
                        return found
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{text!r} was not said: {''.join(self.said)}") from None

    async def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        async with asyncio.timeout(60):
            return await self.process.wait()


@asynccontextmanager
async def scheduler(*flags, rest=None):
    """A scheduler process, and what it says."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage", "run", *flags, env=env, stderr=asyncio.subprocess.PIPE
    )
    said = []

    async def read():
        while line := await process.stderr.readline():
            said.append(line.decode())

    reading = asyncio.create_task(read())
    try:
        yield World(rest, process, said)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


@asynccontextmanager
async def running(folder, *flags, kubeconfig="--kubeconfig", store=None):
    store = store or Store(time.time, random.Random(5), b"k")
    async with serving(store, Authenticator(USERS)) as port:
        config = folder / "kubeconfig"
        write_kubeconfig(config, port, "admin-token")
        endpoint = Endpoint(f"http://127.0.0.1:{port}", FixedCredentials(Identity("admin-token")))
        async with Rest(endpoint, qps=0) as rest:
            given = [kubeconfig, str(config)] if kubeconfig else []
            async with scheduler(*given, *flags, rest=rest) as world:
                yield world


class Asking:
    """Asks the scheduler's own endpoints."""

    def __init__(self, port, ca=None):
        self.base = f"https://127.0.0.1:{port}"
        self.tls = ssl.create_default_context(cafile=ca)
        if ca is None:
            self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE

    async def __call__(self, path, token="admin-token", method="GET", data=None):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            ClientSession(connector=TCPConnector(ssl=self.tls)) as session,
            session.request(method, self.base + path, headers=headers, data=data) as answer,
        ):
            return answer.status, await answer.text()


def serve_flags(folder, port):
    config = str(folder / "kubeconfig")
    return [
        "--bind-address=127.0.0.1", f"--secure-port={port}", "--authentication-kubeconfig", config,
        "--authorization_kubeconfig", config,
    ]  # fmt: skip


@pytest.mark.slow
def test_it_schedules_and_writes_events(tmp_path):
    port = reserve_port()

    async def main():
        async with running(tmp_path, *serve_flags(tmp_path, port), "--cert-dir", str(tmp_path / "certs"), "-v=3") as world:
            await world.node("n1")
            await world.pod("a")
            await world.pod("large", cpu="9")
            await world.until("Successfully bound pod to node")
            await world.until("Unable to schedule pod; no fit; waiting")
            ask = Asking(port, tmp_path / "certs" / "kube-scheduler.crt")
            answers = {path: await ask(path, None) for path in ("/healthz", "/livez", "/readyz", "/metrics", "/configz")}
            for path in ("/metrics", "/metrics/resources", "/metrics/slis", "/configz", "/flagz", "/statusz"):
                answers[path, "admin"] = await ask(path)
            answers["reader"] = await ask("/metrics", "reader-token")
            answers["stranger"] = await ask("/metrics", "no-token")
            answers["verbosity"] = await ask("/debug/flags/v", method="PUT", data="5")
            world.process.send_signal(signal.SIGUSR2)
            await world.until("Dump of scheduling queue")
            await world.until('"Successfully renewed lease"')
            status = await world.end()
            lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
            return answers, status, json.loads(await world.rest.get(lease)), "".join(world.said)

    answers, status, lease, said = asyncio.run(main())
    assert [answers[path] for path in ("/healthz", "/livez", "/readyz")] == [(200, "ok")] * 3
    assert [answers[path][0] for path in ("/metrics", "/configz", "reader", "stranger")] == [403, 403, 403, 401]
    metrics = answers["/metrics", "admin"][1]
    for line in (
        'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1.0',
        'scheduler_pending_pods{queue="unschedulable"} 1.0',
        'leader_election_master_status{name="kube-scheduler"} 1.0',
        "# HELP scheduler_pod_scheduling_attempts [STABLE] Number of attempts to successfully schedule a pod.",
        'kubernetes_feature_enabled{name="OpportunisticBatching",stage="BETA"} 1.0',
    ):
        assert line in metrics
    assert re.search(r'rest_client_requests_total\{code="201",host="127.0.0.1:\d+",method="POST"\} [1-9]', metrics)
    assert 'kube_pod_resource_request{namespace="default",node="n1",pod="a"' in answers["/metrics/resources", "admin"][1]
    assert 'kubernetes_healthcheck{name="leaderElection",type="readyz"} 1.0' in answers["/metrics/slis", "admin"][1]
    shown = json.loads(answers["/configz", "admin"][1])["componentconfig"]
    assert (shown["kind"], shown["leaderElection"]["resourceName"]) == ("KubeSchedulerConfiguration", "kube-scheduler")
    assert f"secure-port={port}\n" in answers["/flagz", "admin"][1]
    assert "Emulation version:  1.37" in answers["/statusz", "admin"][1]
    assert answers["verbosity"] == (200, "successfully set klog.logging.verbosity to 5\n")
    assert "Cache mismatch" not in said
    assert status == 0
    assert lease["spec"]["holderIdentity"] == ""
    assert "admin-token" not in said + str(answers)
    assert "no-token" not in said


@pytest.mark.slow
def test_a_standby_waits_and_its_log_is_json(tmp_path):
    port = reserve_port()

    async def main():
        async with running(tmp_path, *serve_flags(tmp_path, port), "--logging-format=json", "-v=4") as world:
            ask = Asking(port)
            await world.until("Successfully acquired lease")
            async with second(tmp_path, "--logging-format=json", "-v=4") as standby:
                await standby.until("Lease is held by and has not yet expired")
                status = await standby.end()
            return [json.loads(line) for line in world.said], status, (await ask("/metrics/resources"))[0]

    lines, status, resources = asyncio.run(main())
    assert {"ts", "caller", "msg", "v"} <= set(lines[0])
    assert (status, resources) == (0, 200)


@asynccontextmanager
async def second(folder, *flags):
    """Another scheduler on the same cluster."""
    async with scheduler("--kubeconfig", str(folder / "kubeconfig"), "--secure-port=0", *flags) as world:
        yield world


@pytest.mark.slow
def test_an_unavailable_cluster_is_retried(tmp_path):
    """As kube-scheduler does: it may be started before its API server is."""

    async def main():
        write_kubeconfig(tmp_path / "kubeconfig", reserve_port(), "admin-token")
        async with second(tmp_path, "--authentication-skip-lookup") as world:
            await world.until("cannot connect", 40)
            return await world.end(), "".join(world.said)

    status, said = asyncio.run(main())
    assert status == 0
    assert "Traceback" not in said
    assert "admin-token" not in said


@pytest.mark.slow
@pytest.mark.parametrize(("eager", "says"), [(True, "leases.coordination.k8s.io"), (False, " nodes is forbidden: User")])
def test_each_missing_permission_is_reported_in_one_line(tmp_path, eager, says):
    """The lease is asked for once the cluster is known, or at once, as ``delayCacheUntilActive`` says."""

    async def main():
        async with serving(Store(time.time, random.Random(5), b"k"), Authenticator(USERS)) as port:
            write_kubeconfig(tmp_path / "kubeconfig", port, "reader-token")
            given = {
                "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(tmp_path / "kubeconfig")}, "delayCacheUntilActive": eager,
            }  # fmt: skip
            (tmp_path / "config.yaml").write_text(yaml.safe_dump(given))
            async with scheduler(f"--config={tmp_path / 'config.yaml'}", "--secure-port=0") as world:
                found = await world.until(says)
                return await world.end(), world.said, found

    status, said, found = asyncio.run(main())
    assert status == 0
    assert not any("Traceback" in line for line in said)
    assert "forbidden" in found[0]


# -- without a cluster --------------------------------------------------------------------------------------------------


def run_here(*flags, secure=True):
    """Run the command in this process, serving nothing over TLS; return its status and what it said."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        status = _run(["run", *(["--secure-port=0"] if secure else []), *map(str, flags)])
    return status, said.getvalue()


CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaseDuration: 30s, resourceName: mine}
clientConnection: {qps: 7, kubeconfig: theirs}
"""
WRITTEN = {  # file, flags, what of the configuration that comes to
    "the defaults": (None, [], {"qps": 50, "burst": 100, "leaseDuration": "15s", "resourceName": "kube-scheduler"}),
    "deprecated flags": (
        None,
        ["--kube-api-qps=9", "--kube_api_burst=8", "--kubeconfig=mine", "--profiling=false"],
        {"qps": 9, "burst": 8, "kubeconfig": "mine", "enableProfiling": False},
    ),
    "a file": (CONFIG, [], {"qps": 7, "leaseDuration": "30s", "resourceName": "mine", "kubeconfig": "theirs"}),
    "a file overrides deprecated flags": (
        CONFIG,
        ["--kube-api-qps=9", "--kubeconfig=mine", "--profiling=false"],
        {"qps": 7, "kubeconfig": "theirs", "enableProfiling": True},
    ),
    "a file, flags of leader election do": (
        CONFIG,
        ["--leader-elect-lease-duration=1m", "--leader-elect-resource-namespace=mine", "--leader-elect=true"],
        {"leaseDuration": "1m0s", "resourceNamespace": "mine", "resourceName": "mine", "leaderElect": True},
    ),
}


UNSTARTABLE = {
    "a kubeconfig that does not exist": (["--kubeconfig=nowhere"], "nowhere"),
    "an unknown cipher suite": (["--tls-cipher-suites=foo"], "Cipher suite foo not supported or doesn't exist"),
    "an unknown curve": (["--tls-curve-preferences=99"], "curve preference 99 is not supported"),
    "a curve twice": (["--tls-curve-preferences=29,29"], "duplicate curve preference 29"),
    "an unknown version of TLS": (["--tls-min-version=VersionTLS14"], 'unknown tls version \\"VersionTLS14\\"'),
    "no certificate": (["--tls-cert-file=nowhere", "--tls-private-key-file=nowhere"], "nowhere"),
    "no authority of clients": (["--client-ca-file=nowhere"], "nowhere"),
    "no authority of proxies": (["--requestheader-client-ca-file=nowhere"], "nowhere"),
}


@pytest.mark.parametrize(("flags", "why"), UNSTARTABLE.values(), ids=UNSTARTABLE)
def test_a_configuration_with_which_nothing_starts_is_not_written(tmp_path, monkeypatch, flags, why):
    monkeypatch.chdir(tmp_path)
    status, said = run_here(*flags, "--write-config-to", tmp_path / "out.yaml", secure=False)
    assert (status, why in said, (tmp_path / "out.yaml").exists()) == (1, True, False)


POST_QUANTUM = {"alone with another": "4588,29", "all": "4587,4588,4589,23"}


@pytest.mark.parametrize("curves", POST_QUANTUM.values(), ids=POST_QUANTUM)
def test_post_quantum_key_exchanges_are_known(tmp_path, curves):
    status, _ = run_here(f"--tls-curve-preferences={curves}", "--write-config-to", tmp_path / "out.yaml", secure=False)
    assert status == 0


SPLIT = {
    "by its gate": ["--feature-gates=LoggingAlphaOptions=true", "--log-text-split-stream"],
    "in JSON": ["--feature-gates=LoggingAlphaOptions=true", "--logging-format=json", "--log-json-split-stream"],
    "with a buffer": ["--feature-gates=LoggingAlphaOptions=true", "--log-text-split-stream", "--log-text-info-buffer-size=4Ki"],
}


@pytest.mark.parametrize("flags", SPLIT.values(), ids=SPLIT)
def test_the_gate_of_log_options_opens_them(tmp_path, flags):
    status, _ = run_here(*flags, "--write-config-to", tmp_path / "out.yaml")
    assert status == 0


@pytest.mark.parametrize("refused", ["default-scheduler", "other, default-scheduler"])
def test_a_name_that_the_environment_refuses_does_not_start(tmp_path, monkeypatch, refused):
    monkeypatch.setenv("MOORAGE_REFUSED_NAMES", refused)
    status, said = run_here("--write-config-to", tmp_path / "out.yaml")
    assert (status, "schedulerName default-scheduler is refused here" in said) == (1, True)
    monkeypatch.setenv("MOORAGE_REFUSED_NAMES", "others")
    assert run_here("--write-config-to", tmp_path / "out.yaml")[0] == 0


@pytest.mark.parametrize(("file", "flags", "found"), WRITTEN.values(), ids=WRITTEN)
def test_the_configuration_is_written_as_flags_and_file_make_it(tmp_path, monkeypatch, file, flags, found):
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "theirs"):
        write_kubeconfig(tmp_path / name, 1, "t")
    if file is not None:
        (tmp_path / "config.yaml").write_text(file)
        flags = ["--config", tmp_path / "config.yaml", *flags]
    status, said = run_here(*flags, "--write-config-to", tmp_path / "out.yaml")
    written = yaml.safe_load((tmp_path / "out.yaml").read_text())
    flat = {**written, **written["leaderElection"], **written["clientConnection"]}
    assert status == 0
    assert {name: flat[name] for name in found} == found
    assert ("Ignored, because --config is given: --kube-api-qps, --kubeconfig, --profiling" in said) is (
        file is not None and "--kube-api-qps=9" in flags
    )


def test_a_written_configuration_round_trips(tmp_path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    assert run_here("--write-config-to", first)[0] == 0
    assert run_here("--config", first, "--write-config-to", second)[0] == 0
    assert first.read_text() == second.read_text()


def test_the_written_configuration_is_identical_to_kube_schedulers(tmp_path):
    everything = '{schedulerName: "123", plugins: {filter: {disabled: [{name: "*"}]}}}'
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    (tmp_path / "config.yaml").write_text(f"{head}profiles: [{everything}]\n")
    assert run_here("--config", tmp_path / "config.yaml", "--write-config-to", tmp_path / "out.yaml")[0] == 0
    text = (tmp_path / "out.yaml").read_text()
    assert text.startswith(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "clientConnection:\n"
        '  acceptContentTypes: ""\n'
        "  burst: 100\n"
        "  contentType: application/vnd.kubernetes.protobuf\n"
        '  kubeconfig: ""\n'
        "  qps: 50\n"
        "enableContentionProfiling: true\n"
    )
    assert "    bind: {}\n    filter:\n      disabled:\n      - name: '*'\n        weight: 0\n    multiPoint:\n" in text
    assert text.endswith('  schedulerName: "123"\n')


def test_what_is_run_is_logged_and_a_file_that_serves_twice_is_warned_of_once(tmp_path, monkeypatch):
    async def ends(process):
        process.serving.secure.socket.close()
        return 0

    monkeypatch.setattr("moorage.interfaces.cli.live.run.run_process", ends)
    monkeypatch.setattr("moorage.interfaces.cli.live.run.collect_seldom", lambda: None)
    cluster = '{clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], current-context: x, users: [{name: u}], '
    (tmp_path / "kubeconfig").write_text(f"{cluster}contexts: [{{name: x, context: {{cluster: c, user: u}}}}]}}")
    (tmp_path / "kubeconfig").chmod(0o644)
    file = tmp_path / "kubeconfig"
    port = f"--secure-port={reserve_port()}"
    flags = ["--kubeconfig", file, "--authentication-kubeconfig", file, "--authorization-kubeconfig", file, port, "--v=2"]
    status, said = run_here(*flags)
    assert (status, said.count("others can read it")) == (0, 1)
    assert '"Using component config" config=<\n\tapiVersion: kubescheduler.config.k8s.io/v1\n\tclientConnection:\n' in said
    assert "Using component config" not in run_here(*flags, "--v=1")[1]


def test_a_written_configuration_takes_the_place_of_the_old_one_as_a_whole(tmp_path, monkeypatch):
    folder, link = tmp_path / "folder", tmp_path / "link.yaml"
    folder.mkdir()
    (folder / "out.yaml").write_text("old")
    (folder / "out.yaml").chmod(0o604)
    link.symlink_to(folder / "out.yaml")
    seen = []
    replace = Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda self, to: (seen.append((to.read_text(), "apiVersion" in self.read_text())), replace(self, to))
    )
    assert run_here("--write-config-to", link)[0] == 0
    assert seen == [("old", True)]
    assert link.is_symlink()
    assert "apiVersion" in (folder / "out.yaml").read_text()
    assert [one.name for one in folder.iterdir()] == ["out.yaml"]
    assert (folder / "out.yaml").stat().st_mode & 0o777 == 0o604


def test_a_configuration_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "out.yaml").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    status, said = run_here("--write-config-to", tmp_path / "out.yaml")
    assert (status, f"--write-config-to {tmp_path / 'out.yaml'}: No space left on device" in said) == (1, True)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("out.yaml", "old")]


def test_a_configuration_may_go_to_what_is_no_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run_here("--write-config-to", pipe)[0] == 0
        assert os.read(reader, 20).startswith(b"apiVersion")
    finally:
        os.close(reader)


@pytest.mark.parametrize("error", [MemoryError(), ExceptionGroup("tasks", [MemoryError()])], ids=["alone", "of a task"])
def test_an_out_of_memory_error_has_its_own_message(monkeypatch, error):
    async def fails(process):
        raise error

    monkeypatch.setattr("moorage.interfaces.cli.live.run.run_process", fails)
    monkeypatch.setattr("moorage.interfaces.cli.live.run.collect_seldom", lambda: None)
    status, said = run_here("--master=http://127.0.0.1:1", "--leader-elect=false")
    assert status == 1
    assert said.splitlines()[-1].endswith('"Out of memory: the memory limit of the process is too low"')
    assert "Traceback" not in said


def test_a_plugin_in_the_current_folder_is_found(tmp_path, monkeypatch):
    (tmp_path / "just_here.py").write_text(
        "class JustHere:\n    name = 'JustHere'\n    def filter_node(self, pod, node): ...\n"
    )
    (tmp_path / "config.yaml").write_text(
        "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, "
        "profiles: [{plugins: {filter: {enabled: [{name: JustHere}]}}}]}"
    )
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    monkeypatch.chdir(tmp_path)
    status, said = run_here("--config=config.yaml", "--plugins=just_here:JustHere", "--write-config-to=out.yaml")
    assert status == 0, said
    assert "name: JustHere" in (tmp_path / "out.yaml").read_text()


VERSIONS = {
    "plainly": ("--version", r"Moorage v\S+ \(kube-scheduler 1\.37\)\n"),
    "raw": ("--version=raw", r"moorage .*Python 3.*\n"),
}


@pytest.mark.parametrize(("flag", "text"), VERSIONS.values(), ids=VERSIONS)
def test_the_version(flag, text):
    status, said = run_here(flag)
    assert status == 0
    assert re.fullmatch(text, said)


def test_help_names_every_flag():
    status, said = run_here("--help")
    assert status == 0
    for flag in FLAGS:
        assert f"--{flag.name}" in said


def test_a_port_in_use_is_reported(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        flags = ["--master=http://127.0.0.1:1", "--bind-address=127.0.0.1", f"--secure-port={port}"]
        status, said = run_here(*flags)
    assert status == 1
    assert f"failed to listen on 127.0.0.1:{port}: listen tcp 127.0.0.1:{port}: bind: address already in use" in said


PAGE = SOURCES.parent / "docs" / "reference" / "run.md"


def test_the_reference_page_has_every_flag_and_what_it_is_without():
    page = PAGE.read_text("utf-8")
    for flag in FLAGS:
        (row,) = re.findall(rf"^\| (?:`-\w`, )?`--{flag.name}(?: [^`]*)?` \|(.*)\|.*\|$", page, re.MULTILINE)
        plain = flag.default in ("", False, (), None, {}) or flag.name in {"version", "max-pd-vols"}
        assert row.strip() in {"", "`0`"} if plain or flag.default == 0 else row.strip() == f"`{flag.shown(flag.default)}`"
        assert flag.help in page


def test_the_reference_page_has_every_metric_with_labels_and_stability():
    page = PAGE.read_text("utf-8")
    for name, spec in SPECS.items():
        if name in NEVER_MOVED:
            assert f"`{name.removeprefix('scheduler_')}`" in page
            continue
        labels = ", ".join(f"`{label}`" for label in spec.labels)
        assert re.search(rf"^\| `{name}` \| {labels}\s*\| {spec.stability or 'our own'} \|", page, re.MULTILINE), name


KUBECONFIG = {"apiVersion": "v1", "kind": "Config"}
REFUSED = {  # flags, file, what is said
    "an unknown flag": (["--nope"], None, "unknown flag: --nope"),
    "a password in the address": (
        ["--master=https://me:secret@x"], None, "--master: the address must not contain a user name or a password",
    ),
    "no address": (["--master=x"], None, "the address must start with http"),
    "no cluster around": ([], None, "not in a cluster"),
    "a bad truth": (["--leader-elect=maybe"], None, "strconv.ParseBool"),
    "a bad duration": (["--leader-elect-lease-duration=15"], None, "missing unit"),
    "words that are no flags": (["now"], None, "does not take any arguments, got"),
    "an invalid port": (["--secure-port=70000"], None, "--secure-port 70000 must be between 1 and 65535"),
    "an unknown gate": (["--feature-gates=Nope=true"], None, "unrecognized feature gate: Nope"),
    "an unknown release": (["--emulated-version=2.0"], None, "--emulated-version: 2.0 cannot be emulated"),
    "an unknown log format": (["--logging-format=xml"], None, "Unsupported log format"),
    "a lease shorter than its renewal": (["--leader-elect-lease-duration=5s"], None, "leaseDuration must be greater"),
    "another kind of lock": (["--leader-elect-resource-lock=endpoints"], None, "endpoints lock is removed, migrate to leases"),
    "an invalid address": (["--bind-address=x", "--secure-port=1"], None, 'failed to parse IP: "x"'),
    "a file that is not there": (["--config=/nowhere/x.yaml"], None, "/nowhere/x.yaml"),
    "no kubeconfig there": (["--kubeconfig=/nowhere/kc"], None, "/nowhere/kc: no such file"),
    "an empty kubeconfig": (["--kubeconfig={}"], "", ""),
    "no YAML": (["--kubeconfig={}"], "{", ""),
    "another kind": (["--kubeconfig={}"], "apiVersion: v1\nkind: Pod\n", ""),
    "no current context": (["--kubeconfig={}"], yaml.safe_dump(KUBECONFIG), ""),
    "a context of no cluster": (
        ["--kubeconfig={}"],
        yaml.safe_dump({**KUBECONFIG, "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "x"}}]}),
        "",
    ),
    "a metric's labels that are none": (["--allow-metric-labels=a=b"], None, "must have keys with format"),
    "an older release's hidden metrics": (["--show-hidden-metrics-for-version=1.20"], None, "or have the value '1.36'"),
    "header names that are none": (["--requestheader-uid-headers= "], None, 'empty value in "requestheader-uid-headers"'),
    "a split log": (["--log-text-split-stream"], None, "LoggingAlphaOptions"),
}  # fmt: skip


@pytest.mark.parametrize(("flags", "file", "text"), REFUSED.values(), ids=REFUSED)
def test_errors_are_one_line_and_exit_1(tmp_path, flags, file, text):
    path = tmp_path / "kubeconfig"
    if file is not None:
        path.write_text(file)
        path.chmod(0o600)
    status, said = run_here(*(flag.replace("{}", str(path)) for flag in flags))
    lines = said.splitlines()
    assert status == 1
    assert "secret" not in said
    if len(lines) > 1:  # faults of YAML show the line and a caret, as klog writes several lines
        assert lines[0].endswith('] "command failed" err=<')
        assert (lines[-2].strip(), lines[-1].strip()) == ("| ^", ">")
        return
    assert lines[0].startswith("Error: ") or '] "command failed" err="' in lines[0]
    assert text in lines[0].replace('\\"', '"')


THEIRS = {  # flags → what kube-scheduler v1.36.2 said to them, run as a program
    "--nope": "unknown flag: --nope",
    "-x": "unknown shorthand flag: 'x' in -x",
    "-v": "flag needs an argument: 'v' in -v",
    "--v=x": 'invalid argument "x" for "-v, --v" flag: strconv.ParseUint: parsing "x": invalid syntax',
    "--v=-1": 'invalid argument "-1" for "-v, --v" flag: strconv.ParseUint: parsing "-1": invalid syntax',
    "--vmodule=a": 'invalid argument "a" for "--vmodule" flag: "a" does not have the pattern=N format',
    "--vmodule=a=x": 'invalid argument "a=x" for "--vmodule" flag: parsing verbosity in "a=x": strconv.ParseUint: parsing "x": '
    "invalid syntax",
    "--tls-sni-cert-key=a": 'invalid argument "a" for "--tls-sni-cert-key" flag: expected comma separated certificate and key '
    "file paths",
    "--tls-curve-preferences=x": 'invalid argument "x" for "--tls-curve-preferences" flag: strconv.ParseInt: parsing "x": '
    "invalid syntax",
    "--log-json-info-buffer-size=x": 'invalid argument "x" for "--log-json-info-buffer-size" flag: quantities must match the '
    "regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    "--version=v1.2.3": 'invalid argument "v1.2.3" for "--version" flag: version "v1.2.3" must match major/minor/patch of '
    'default version "v1.37.2"',
    "--secure-port=-1": "--secure-port -1 must be between 0 and 65535, inclusive. 0 for turning off secure port",
    "--secure-port=70000": "--secure-port 70000 must be between 1 and 65535, inclusive. It cannot be turned off with 0",
    "--leader-elect-lease-duration=5s": "couldn't create leader elector: leaseDuration must be greater than renewDeadline",
    "--leader-elect-renew-deadline=1s": "couldn't create leader elector: renewDeadline must be greater than "
    "retryPeriod*JitterFactor",
    "--leader-elect-retry-period=0s": "couldn't create leader elector: retryPeriod must be greater than zero",
    "--feature-gates=CoordinatedLeaderElection=true": (
        "--feature-gates: CoordinatedLeaderElection=true is not supported: this scheduler writes no LeaseCandidate and takes "
        "the lease itself; leave the gate closed, or do without leader election: --leader-elect=false"
    ),
    "--leader-elect-resource-lock=endpoints": "couldn't create resource lock: endpoints lock is removed, migrate to leases",
    "--feature-gates=NodeDeclaredFeatures=false": "cannot set feature gate NodeDeclaredFeatures to false, feature is "
    "locked to true",
    "--feature-gates=WorkloadWithJob=true": "WorkloadWithJob is enabled, but depends on features that are disabled: "
    "[GenericWorkload]",
    "--logging-format=xml": 'format: Invalid value: "xml": Unsupported log format',
    "--log-flush-frequency=0s": 'flushFrequency: Invalid value: "0s": Must be greater than zero',
    "--log-json-split-stream": "options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled",
    "--log-text-info-buffer-size=4Ki": "options.text.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled",
    "--show-hidden-metrics-for-version=1.30": 'metrics.showHiddenMetricsForVersion: Invalid value: "1.30": must be omitted or '
    "have the value '1.36'; only the previous minor version is allowed",
    "--allow-metric-labels=foo": 'invalid argument "foo" for "--allow-metric-labels" flag: foo must be formatted as key=value',
    "--allow-metric-labels=foo=bar": 'metrics.allowListMapping: Invalid value: {"foo":"bar"}: must have keys with format '
    '`metricName,labelName` where metricName matches "[a-zA-Z_:][a-zA-Z0-9_:]*" and labelName matches "[a-zA-Z_][a-zA-Z0-9_]*"',
}


@pytest.mark.parametrize(("flag", "text"), THEIRS.items(), ids=THEIRS)
def test_flag_errors_have_kube_schedulers_text(tmp_path, flag, text):
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps({
        **KUBECONFIG, "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    }))  # fmt: skip
    path.chmod(0o600)
    status, said = run_here(f"--kubeconfig={path}", flag)
    told = said.strip().split('"command failed" err=')[-1]
    assert (status, json.loads(told) if told.startswith('"') else told.removeprefix("Error: ")) == (1, text)


def test_a_metrics_label_is_allowed_values_without_quotes():
    given, _ = read_flags(FLAGS, ["--allow-metric-labels=some_metric,label=a,b"])
    assert given["allow-metric-labels"] == {"some_metric,label": "a,b"}


@pytest.mark.parametrize("share", ["1.5", "-0.1", "nan"])
def test_a_share_outside_0_to_1_is_refused(share):
    status, said = run_here(f"--verify={share}", "--master", "http://127.0.0.1:1")
    assert status == 1
    assert f"--verify: {share} must be a share from 0 to 1, such as 0.01" in said
