"""What the flags say about serving, worked out before anything is started."""

import asyncio
import random
from types import SimpleNamespace

import pytest

from moorage.api.core import Node
from moorage.basis.client.credentials import Endpoint
from moorage.basis.client.kubeconfig import in_cluster
from moorage.basis.client.rest import Rest
from moorage.basis.inputs.scheduler_config import ConfigSource
from moorage.basis.serving.certificate_authority import make_authority
from moorage.core.building.builder import build_resolved
from moorage.core.config.scheduler_document import load_default
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import InputError
from moorage.interfaces.cli.live import run_serving
from moorage.interfaces.cli.live.release_flags import FLAGS
from moorage.interfaces.cli.live.run_process import closed_pages
from moorage.interfaces.cli.live.run_serving import metric_filter, serving_rules
from moorage.interfaces.cli.pflag import read_flags
from moorage.live.runtime.attempt_metrics import Observers
from moorage.live.server.live_scheduler import LeaderSettings, Live, LiveSettings
from tests.ports import reserve_port


def given(*words):
    return read_flags(FLAGS, words)[0]


def test_metrics_are_left_out_and_labels_kept_small(tmp_path):
    manifest = tmp_path / "allow.yaml"
    manifest.write_text('allowListMapping:\n  "m,a": "x,y"\n  "m,b": "z"\n')
    found = metric_filter(
        given("--disabled-metrics=one,two", "--allow-metric-labels-manifest", str(manifest), "--allow-metric-labels", '"m,b=q"')
    )
    assert found.disabled == {"one", "two"}
    assert found.allowed == {("m", "a"): frozenset("xy"), ("m", "b"): frozenset("q")}


@pytest.mark.parametrize("text", ["", "- a", "allowListMapping: 7", "{"])
def test_an_invalid_manifest_is_rejected(tmp_path, text):
    manifest = tmp_path / "allow.yaml"
    manifest.write_text(text)
    with pytest.raises(InputError, match="cannot read allowListMapping"):
        metric_filter(given("--allow-metric-labels-manifest", str(manifest)))


def test_in_a_pod_the_account_asks_about_callers_with_its_token_of_the_day(tmp_path, monkeypatch):
    now = [0.0]
    (tmp_path / "ca.crt").write_bytes(make_authority(tmp_path / "pki").certificate)
    (tmp_path / "token").write_text("first")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(in_cluster, "__defaults__", (tmp_path,))
    monkeypatch.setattr(run_serving, "time", SimpleNamespace(monotonic=lambda: now[0]))
    rules = serving_rules(given(f"--secure-port={reserve_port()}", "--bind-address=127.0.0.1"), kubeconfig=None)
    rules.socket.close()
    for asked in (rules.authentication, rules.authorization):
        now[0] = 0.0
        (tmp_path / "token").write_text("first")
        assert asked.server == "https://10.0.0.1:443"
        assert asyncio.run(asked.credentials.identity()).token == "first"
        (tmp_path / "token").write_text("second")
        now[0] = 61.0
        assert asyncio.run(asked.credentials.identity()).token == "second"


GATES = {  # what --feature-gates says, the pages that are not served
    "nothing": ([], set()),
    "one closed": (["ComponentFlagz=false"], {"/flagz"}),
    "one closed for kube": (["kube:ComponentStatusz=false", "OpportunisticBatching=false"], {"/statusz"}),
    "all of the stage": (["AllBeta=false"], {"/flagz", "/statusz"}),
    "all of the stage but one": (["AllBeta=false", "ComponentFlagz=true"], {"/statusz"}),
}


@pytest.mark.parametrize(("gates", "closed"), GATES.values(), ids=GATES)
def test_pages_have_gates(gates, closed):
    assert closed_pages(gates) == closed


class Told:
    """A log that keeps what is reported."""

    def __init__(self):
        self.lines = []

    def shows(self, level):
        return True

    def info(self, level, text, **pairs):
        self.lines.append(text)

    def error(self, error, text, **pairs):
        self.lines.append(text)


def of_a_replica(*, delayed, lists=()):
    """Return what a replica that stands for a lease watched and told, where these kinds can be listed."""

    async def main():
        loaded = load_default(ConfigSource())
        scheduler = Scheduler(
            Cycle(), loaded.gates, lambda handle: build_resolved(loaded.profiles, loaded.registry, handle).profiles
        )
        log = Told()
        async with Rest(Endpoint("http://127.0.0.1:1"), qps=0) as rest:
            live = Live(
                scheduler, rest, LiveSettings(LeaderSettings(), delayed=delayed), identity="me_1",
                wall=lambda: "2026-01-01T00:00:00.000000Z", chance=random.Random(1), observers=Observers(log=log),
            )  # fmt: skip
            asked = []
            kinds = [one.resource.type for one in live.reflectors]
            for reflector, source in zip(live.reflectors, live.loop.inbox.sources, strict=True):
                reflector.run = lambda kind=reflector.resource.type: _follow(asked, kind)
                if reflector.resource.type in (lists or kinds):
                    source.begin()
                    source.end()
            task = asyncio.create_task(live.run())
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return asked, log.lines

    return asyncio.run(main())


async def _follow(asked, kind):
    asked.append(kind)
    await asyncio.Event().wait()


@pytest.mark.parametrize(("delayed", "watched"), [(False, True), (True, False)])
def test_a_standby_watches_unless_delay_cache_until_active_is_set(delayed, watched):
    """With delayCacheUntilActive nothing is listed until this replica leads."""
    asked, _ = of_a_replica(delayed=delayed)
    assert (Node in asked) is watched


STANDING = {  # watches only when it leads, what it could list (nothing: all), whether it stands for the lease
    "all was listed": (False, (), True),
    "the pods could not be listed": (False, (Node,), False),
    "nothing is to be listed yet": (True, (Node,), True),
}


@pytest.mark.parametrize(("delayed", "lists", "stands"), STANDING.values(), ids=STANDING)
def test_a_replica_that_knows_nothing_of_the_cluster_leaves_the_lease_to_others(delayed, lists, stands):
    _, told = of_a_replica(delayed=delayed, lists=lists)
    assert ("Attempting to acquire leader lease..." in told) is stands
    assert ("Handlers synced" in told) is (not lists)
