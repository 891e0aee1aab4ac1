"""The faults of our matrix that are not of its core, each on whole schedulers in virtual time; see ``test_fault_matrix.py``."""

import asyncio

import pytest

from moorage.errors import ClusterError
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.verdicts import Hold
from tools.simtest.network import Rule
from tools.simtest.stage import on_stage

TOO_NEW = ClusterError("Timeout: Too large resource version: 99, current: 9", 504, "Timeout")


# -- lists and rights --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_f05_an_expired_continue_token_falls_back_to_a_full_list():
    continued = []

    def goes_on(sent):
        found = sent.what == "GET pods" and "continue" in sent.query
        continued.extend([sent] if found else [])
        return found

    async def main(stage):
        stage.world.node("n1")
        for number in range(510):
            stage.world.pod(f"other-{number}", schedulerName="other")
        stage.world.pod("p")
        stage.network.streams = False
        stage.network.rules.append(Rule(goes_on, error=ClusterError("the token is too old", 410, "Expired")))
        stage.start()
        await stage.placed("p", within_s=60)
        assert len(continued) == 1

    on_stage(main, begun=False)


def test_f05_a_too_large_resource_version_is_relisted():
    async def main(stage):
        stage.network.rules.append(Rule(lambda sent: sent.what == "WATCH pods", error=TOO_NEW, times=3))
        for link in stage.links("pods"):
            link.cut("")
        stage.world.node("n1")
        stage.world.pod("p")
        await stage.placed("p", within_s=30)
        assert any("Too large resource version" in line and "listing again" in line for line in stage.recording.reports)

    on_stage(main)


@pytest.mark.parametrize("what", ["POST binding", "WATCH pods", "GET nodes", "PUT leases"])
@pytest.mark.parametrize("code", [401, 403])
def test_f17_temporarily_revoked_permissions(what, code):
    async def main(stage):
        stage.world.node("n1")
        stage.network.streams = False
        refusing = Rule(lambda sent: sent.what == what, error=ClusterError(f"{code} no longer", code, "Forbidden"))
        stage.network.rules.append(refusing)
        for link in stage.links():
            link.cut("expired")
        stage.world.pod("p")
        seen = stage.network.spoiled
        await asyncio.sleep(60)
        asked = stage.network.spoiled - seen
        assert 1 <= asked <= 60  # tried again, and less and less often; leases are asked for each 2 s
        refusing.times = 0
        await stage.placed("p", within_s=45)
        conditions = [str(one.document["status"].get("conditions")) for one in stage.history("p")]
        told = [*stage.recording.reports, *conditions, *(how for _, _, how in stage.recording.exits)]
        assert any(f"{code} no longer" in line or "lost its lease" in line for line in told)

    on_stage(main, settle_s=65.0)  # a watch that was refused for a minute is tried again within another one


@pytest.mark.parametrize("how", [{"error": ClusterError("500", 500)}, {"hold_s": 20.0}], ids=["failing", "slow"])
def test_f18_failed_condition_writes_delay_no_bind(how):
    async def main(stage):
        stage.world.node("n1", cpu=60, pods=100)
        stage.spoil("PATCH status", **how)
        for number in range(20):
            stage.world.pod(f"huge-{number}", cpu="100")
            stage.world.pod(f"p{number}")
        await stage.placed(*(f"p{number}" for number in range(20)), within_s=2)

    on_stage(main)


# -- hints -------------------------------------------------------------------------------------------------------------


class Hints:
    """Gates or refuses pods until ``open``; its hint about nodes raises, or always says no."""

    name = "Hints"
    gates, raises, open = False, False, False

    def pre_enqueue(self, pod):
        return Hold.because("closed") if Hints.gates and not Hints.open else None

    def filter_node(self, state, node):
        return None if Hints.open else Hold.because("closed")

    def wakes_on(self):
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL), self._hint)

    def _hint(self, pod, old, new):
        if Hints.raises:
            raise KeyError("a hint that is broken")
        return False


@pytest.mark.parametrize("gates", [False, True], ids=["refused", "gated"])
@pytest.mark.parametrize("raises", [False, True], ids=["never", "raises"])
def test_f31_a_raising_hint_queues_and_a_skipping_hint_delays_by_five_minutes(gates, raises, monkeypatch):
    monkeypatch.setattr(Hints, "gates", gates)
    monkeypatch.setattr(Hints, "raises", raises)
    monkeypatch.setattr(Hints, "open", False)

    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p")
        await asyncio.sleep(20)
        Hints.open = True
        stage.world.touch_node("n1")
        took = await stage.until(lambda: stage.node_of("p"), within_s=335)
        stage.scheduler.queue.incoming.clear()  # here the flush is what was asked for
        return took

    assert (on_stage(main, Hints) < 11) is raises


# -- others ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_f39_two_schedulers_without_leader_election_bind_no_pod_twice(seed):
    async def main(stage):
        for number in range(6):
            stage.world.node(f"n{number}", cpu=20, pods=50)
        for link in stage.links("pods")[:1]:
            link.delay_s = 0.003
        for number in range(60):
            stage.world.pod(f"p{number}")
            await asyncio.sleep(0.01)
        names = [f"p{number}" for number in range(60)]
        await stage.placed(*names)
        moves = [{one.document["spec"].get("nodeName") for one in stage.history(name)} - {None} for name in names]
        assert all(len(nodes) == 1 for nodes in moves)
        both = {one.actor for name in names for one in stage.binds(name)}
        assert len(both) == 2
        refused = [one for name in names for one in stage.binds(name) if one.code == 409]
        assert refused

    on_stage(main, members=2, leader=False, seed=seed)


# -- preemption --------------------------------------------------------------------------------------------------------


def evicted(stage):
    return {entry.path.rpartition("/")[2] for entry in stage.recording.entries if getattr(entry, "method", "") == "DELETE"}


@pytest.mark.parametrize("budget", [False, True], ids=["", "a budget comes"])
def test_f43_a_victim_that_never_terminates_blocks_no_other_pod(budget):
    async def main(stage):
        stage.world.end_after_s = 1e6
        for name in ("n1", "n2"):
            stage.world.node(name, cpu=1)
        for name in ("v1", "v2"):
            stage.world.pod(name, priorityClassName="low")
        await stage.placed("v1", "v2")
        stage.world.pod("important", priorityClassName="high")
        await stage.until(lambda: evicted(stage))
        if budget:
            body = {"metadata": {"name": "b"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}}
            made = stage.api.do(
                "POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
                {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **body},
            )  # fmt: skip
            assert made is not None
        for _ in range(24):  # after five minutes it would be tried again in any case
            await asyncio.sleep(10)
            stage.world.touch_node("n1")
        assert len(evicted(stage)) == 1
        assert stage.node_of("important") == ""
        (victim,) = evicted(stage)
        stage.world.delete_pod(victim, grace=0)
        await stage.placed("important")

    on_stage(main)


ENDS = {
    "deleted": lambda world: world.delete_pod("important", grace=0),
    "bound elsewhere": lambda world: (world.node("n2", cpu=1), world.bind("important", "n2")),
    "its node is gone": lambda world: (world.delete_node("n1"), world.node("n3", cpu=1)),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_f44_a_failed_nomination_frees_its_resources(end):
    async def main(stage):
        stage.world.end_after_s = 5.0
        stage.world.node("n1", cpu=1)
        stage.world.pod("victim", priorityClassName="low")
        await stage.placed("victim")
        stage.world.pod("important", priorityClassName="high")
        await stage.until(lambda: stage.pod("important")["status"].get("nominatedNodeName"))
        stage.world.pod("next", priorityClassName="low", cpu="500m")
        await asyncio.sleep(1)
        end(stage.world)
        if stage.pod("important") is None or stage.node_of("important"):
            await stage.placed("next", within_s=20)
        else:
            await stage.placed("important", within_s=20)
            stage.world.delete_pod("important", grace=0)
            await stage.placed("next", within_s=20)

    on_stage(main)
