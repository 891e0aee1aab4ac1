"""The loop on a cluster in memory, in virtual time: pods get placed, and faults on the way leave nothing wrong behind."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.feature_gates import FeatureGates
from moorage.basis.inputs.scheduler_config import registry_with
from moorage.core.building.builder import build_profiles
from moorage.core.config.configuration_loader import load
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.facts import Seen
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import UNREACHABLE, ClusterError
from moorage.framework.effects import Call, Until, Write
from moorage.live.runtime.attempt_metrics import SILENT, Observers
from moorage.live.runtime.inbox import Inbox
from moorage.live.runtime.loop import Loop, LoopLimits
from moorage.live.runtime.ports import Clocks
from moorage.testing.builders import a_node, a_pod
from moorage.testing.memory_cluster import MemoryCluster, Trouble
from moorage.testing.virtual_time import run_virtually

CONFIG = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def a_scheduler(plugins=(), asked=(), gates=None):
    gates, registry = gates if isinstance(gates, FeatureGates) else FeatureGates(gates or {}), registry_with(plugins)
    names = ", ".join(f"{{name: {plugin.name}}}" for plugin in plugins)
    profiles = f"profiles: [{{plugins: {{multiPoint: {{enabled: [{names}]}}}}}}]\n"
    configuration = load(CONFIG + profiles.encode(), "config", registry, gates)
    return Scheduler(
        Cycle(seed=1, percentage_of_nodes_to_score=0, extenders=asked),
        gates,
        lambda handle: build_profiles(configuration, registry, gates, handle).profiles,
    )


def node(name, cpu="2", **more):
    return a_node(name, allocatable={"cpu": cpu, "memory": "8Gi", "pods": "20"}, **more)


def pod(name, cpu="1", **more):
    more.setdefault("schedulerName", "default-scheduler")
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return a_pod(name, containers=containers, **more).pod


@asynccontextmanager
async def running(cluster, plugins=(), asked=(), gates=None, log=SILENT, measures=None, **options):
    clock = asyncio.get_running_loop().time
    reports, inbox = [], Inbox()
    scheduler = a_scheduler(plugins, asked, gates)
    clocks = Clocks(clock, lambda: f"{clock():.3f}")
    loop = Loop(scheduler, inbox, cluster, clocks, observers=Observers(reports.append, log, measures), **options)
    loop.reports = reports
    cluster.watch(inbox)
    tasks = [asyncio.create_task(loop.act()), asyncio.create_task(loop.run())]
    try:
        yield loop
    finally:
        for task in tasks:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def placed(cluster):
    return {one.name: one.spec.node_name for one in cluster.pods()}


def check_history(cluster, cpu_of):
    """Nothing bad ever happened: no pod moved, no node overfull, at any revision."""
    where, alive = {}, {}
    for entry in cluster.history:
        if not isinstance(entry.obj, Pod):
            continue
        uid, on = entry.obj.uid, entry.obj.spec.node_name
        if entry.verb == "remove":
            alive.pop(uid, None)
            continue
        if uid in where:
            assert where[uid] == on, f"{uid} moved from {where[uid]} to {on}"
        if on:
            where[uid] = on
            alive[uid] = on
            on_node = sum(cpu_of(other) for other, its in alive.items() if its == on)
            assert on_node <= 2, f"{on} is overfull at {entry.revision}"


def binds(cluster):
    return [entry.obj.uid for entry in cluster.history if entry.verb == "bind"]


def crowd(count):
    """Return a full node of two CPUs, so many pods on it, and one that waits for a CPU."""
    each = f"{2000 // count}m"
    return [node("n1"), pod("waits"), *(pod(f"p{at}", each, nodeName="n1") for at in range(count))]


@pytest.mark.parametrize("facts", [1, 7, 1000])
def test_no_attempt_before_the_first_list_is_complete(facts):
    async def main():
        cluster = MemoryCluster(crowd(20))
        async with running(cluster, limits=LoopLimits(facts=facts)) as loop:
            await asyncio.sleep(1)
            return placed(cluster)["waits"], loop.attempts

    assert run_virtually(main()) == ("", 1)


def test_no_attempt_during_a_relist():
    """A node grows and fills up while the watch is silent. The list that tells of both comes in slowly."""

    async def main():
        cluster = MemoryCluster([node("n1", "500m"), pod("waits")])
        async with running(cluster, limits=LoopLimits(facts=2)) as loop:
            await asyncio.sleep(1)
            assert loop.attempts == 1
            cluster.stalled = True
            list_of_all = [cluster.put(obj) for obj in crowd(20)]
            (source,) = loop.inbox.sources
            source.begin()
            for obj in list_of_all:
                loop.inbox.put_now(Seen(obj))
                await asyncio.sleep(1)
            assert loop.attempts == 1
            source.end()
            await asyncio.sleep(1)
            return placed(cluster)["waits"], loop.attempts

    assert run_virtually(main()) == ("", 2)


def test_pods_are_bound_with_an_event():
    async def main():
        cluster = MemoryCluster([node("n1"), node("n2"), *(pod(f"p{i}") for i in range(5))])
        async with running(cluster) as loop:
            await asyncio.sleep(2)
            return cluster, loop

    cluster, loop = run_virtually(main())
    nodes = sorted(filter(None, placed(cluster).values()))
    assert [(name, len(list(pods))) for name, pods in groupby(nodes)] == [("n1", 2), ("n2", 2)]
    (left,) = [one for one in cluster.pods() if not one.spec.node_name]
    (condition,) = left.status.conditions
    assert (condition.type, condition.status, condition.reason) == ("PodScheduled", "False", "Unschedulable")
    assert condition.message.startswith("0/2 nodes are available: 2 Insufficient cpu.")
    told = sorted((note.reason, note.regarding.name) for note in cluster.notes)
    assert [reason for reason, _ in told] == ["FailedScheduling"] + ["Scheduled"] * 4
    scheduled = next(note for note in cluster.notes if note.reason == "Scheduled")
    assert (
        scheduled.text
        == f"Successfully assigned default/{scheduled.regarding.name} to {placed(cluster)[scheduled.regarding.name]}"
    )
    assert (loop.faults, loop.reports) == (0, [])
    check_history(cluster, lambda uid: 1)


def test_an_unschedulable_pod_is_bound_as_soon_as_resources_are_free():
    async def main():
        cluster = MemoryCluster([node("n1", cpu="1"), pod("p1"), pod("p2")])
        async with running(cluster):
            await asyncio.sleep(60)
            first = next(one for one in cluster.pods() if one.spec.node_name)
            cluster.remove(first)
            start = asyncio.get_running_loop().time()
            while not all(placed(cluster).values()):
                await asyncio.sleep(0.01)
            return asyncio.get_running_loop().time() - start

    assert run_virtually(main()) < 1


LOST = {
    "connection reset": ClusterError("connection reset"),
    "gateway timeout": ClusterError("504 Gateway Timeout", 504, "Timeout"),
    "a busy proxy": ClusterError("429 Too Many Requests", 429),
}


@pytest.mark.parametrize("error", LOST.values(), ids=LOST)
@pytest.mark.parametrize("watch_lag", [0.001, 300.0])
def test_a_bind_with_a_lost_reply_is_read_back_and_stands(error, watch_lag):
    async def main():
        cluster = MemoryCluster([node("n1"), node("n2"), pod("p1")], lag_s=watch_lag)
        cluster.faults.append(Trouble("bind", error, after=True))
        cluster.faults.append(Trouble("read_pod", ClusterError("down"), times=5))
        async with running(cluster) as loop:
            cluster.put(pod("p2", cpu="2"))
            await asyncio.sleep(400)
            return cluster, loop

    cluster, loop = run_virtually(main())
    assert len(binds(cluster)) == cluster.requests["bind"] == 2
    # The watch may tell first; where it tells late, the pods are looked at now and then.
    assert cluster.requests["read_pod"] in (range(6, 20) if watch_lag > 1 else [1])
    assert all(placed(cluster).values())
    assert not any(note.reason == "FailedScheduling" for note in cluster.notes)
    check_history(cluster, lambda uid: 2 if uid.endswith("p2") else 1)
    assert not loop.scheduler.queue.pending()


def test_a_bind_that_was_not_applied_is_retried():
    async def main():
        cluster = MemoryCluster([node("n1"), pod("p1")])
        cluster.faults.append(Trouble("bind", times=2))
        async with running(cluster):
            await asyncio.sleep(30)
            return cluster

    cluster = run_virtually(main())
    assert placed(cluster) == {"p1": "n1"}
    assert cluster.requests["bind"] == 3
    failed = next(note for note in cluster.notes if note.reason == "FailedScheduling")
    assert "connection reset; it is still on no node" in failed.text
    patched = next(entry.obj for entry in cluster.history if entry.verb == "patch_status")
    assert patched.status.conditions[0].reason == "SchedulerError"


@pytest.mark.parametrize(
    ("release", "error", "times", "sent", "failures"),
    [
        ("1.36.2", ClusterError("busy", 503, "ServiceUnavailable"), 1, 2, 1),
        ("1.37", ClusterError("busy", 503, "ServiceUnavailable"), 3, 4, 0),
        ("1.37", ClusterError("conflict", 409, "Conflict"), 3, 4, 0),
        ("1.37", ClusterError("broken", 500, "InternalError"), 4, 5, 1),
        ("1.37", ClusterError("cannot connect", reason=UNREACHABLE), 1, 2, 0),
        ("1.37", ClusterError("no", 403, "Forbidden"), 1, 2, 1),
    ],
)  # fmt: skip
def test_since_1_37_a_bind_whose_error_may_pass_is_sent_again(release, error, times, sent, failures):
    async def main():
        cluster = MemoryCluster([node("n1"), pod("p1")])
        cluster.faults.append(Trouble("bind", error, times=times))
        async with running(cluster, gates=FeatureGates(release=release)):
            await asyncio.sleep(30)
            return cluster

    cluster = run_virtually(main())
    assert placed(cluster) == {"p1": "n1"}
    assert cluster.requests["bind"] == sent
    assert [note.reason for note in cluster.notes].count("FailedScheduling") == failures


@pytest.mark.parametrize(("release", "most"), [("1.36.2", 1), ("1.37", 4)])  # 1.37 sends a bind again on a conflict
def test_a_pod_bound_by_another_scheduler_stays_there(release, most):
    async def main():
        cluster = MemoryCluster([node("n1"), node("n2"), pod("p1")], lag_s=0.5)
        async with running(cluster, gates=FeatureGates(release=release)) as loop:
            taken = cluster.get(Pod, "default/p1")
            cluster.put(replace(taken, spec=replace(taken.spec, node_name="n2")), "other")
            await asyncio.sleep(60)
            return cluster, loop

    cluster, loop = run_virtually(main())
    assert placed(cluster) == {"p1": "n2"}
    assert binds(cluster) == []
    assert cluster.requests.get("bind", 0) <= most
    assert loop.scheduler.cluster.node_of("default/p1") == "n2"
    assert not loop.scheduler.queue.pending()


def test_a_pod_recreated_under_its_name_is_a_new_pod():
    async def main():
        cluster = MemoryCluster([node("n1"), pod("p1")], lag_s=0.3)
        async with running(cluster) as loop:
            cluster.faults.append(Trouble("bind", None, hold_s=1.0))
            await asyncio.sleep(0.0005)
            cluster.remove(pod("p1"))
            cluster.put(pod("p1", uid="second"))
            await asyncio.sleep(30)
            return cluster, loop

    cluster, loop = run_virtually(main())
    assert binds(cluster) == ["second"]
    assert loop.scheduler.cluster.node_of("second") == "n1"
    assert loop.scheduler.cluster.node_of("default/p1") is None


def test_a_watch_gap_is_repaired_by_a_relist():
    async def main():
        cluster = MemoryCluster([node("n1", cpu="1"), pod("p1")])
        async with running(cluster) as loop:
            await asyncio.sleep(5)
            cluster.stalled = True
            cluster.remove(pod("p1"))
            cluster.put(pod("p2"))
            await asyncio.sleep(60)
            before = placed(cluster)
            cluster.relist()
            await asyncio.sleep(5)
            return before, placed(cluster), loop

    before, after, loop = run_virtually(main())
    assert before == {"p2": ""}
    assert after == {"p2": "n1"}
    assert loop.scheduler.cluster.node_of("default/p1") is None


def test_a_pod_of_higher_priority_preempts_another():
    async def main():
        victim = pod("low", cpu="2", priority=0, nodeName="n1", terminationGracePeriodSeconds=20)
        cluster = MemoryCluster([node("n1"), victim])
        async with running(cluster):
            cluster.put(pod("high", cpu="2", priority=100))
            await asyncio.sleep(10)
            nominated = cluster.get(Pod, "default/high").status.nominated_node_name
            await asyncio.sleep(30)
            return cluster, nominated

    cluster, nominated = run_virtually(main())
    assert nominated == "n1"
    assert placed(cluster) == {"high": "n1"}
    of_victim = [entry for entry in cluster.history if isinstance(entry.obj, Pod) and entry.obj.name == "low"]
    assert [entry.verb for entry in of_victim] == ["put", "patch_status", "delete_pod", "remove"]
    (condition,) = of_victim[1].obj.status.conditions
    assert (condition.type, condition.reason) == ("DisruptionTarget", "PreemptionByScheduler")
    note = next(note for note in cluster.notes if note.reason == "Preempted")
    assert note.text == "Preempted by pod default/high on node n1"
    check_history(cluster, lambda uid: 2)


def test_a_failed_eviction_is_retried():
    async def main():
        victim = pod("low", cpu="2", priority=0, nodeName="n1", terminationGracePeriodSeconds=1)
        cluster = MemoryCluster([node("n1"), victim])
        cluster.faults.append(Trouble("delete_pod", ClusterError("500", 500), times=3))
        async with running(cluster) as loop:
            cluster.put(pod("high", cpu="2", priority=100))
            await asyncio.sleep(60)
            return placed(cluster), loop.reports

    after, reports = run_virtually(main())
    assert after == {"high": "n1"}
    assert [line for line in reports if line.startswith("preemption for default/high")]


@pytest.mark.parametrize("lane", ["record", "patch_status"])
def test_slow_status_and_events_do_not_slow_binds(lane):
    async def main():
        cluster = MemoryCluster([node("n1", cpu="1"), *(pod(f"stuck{i}", cpu="8") for i in range(50))])
        cluster.faults.append(Trouble(lane, ClusterError("down", 500), hold_s=10, times=10_000))
        async with running(cluster):
            await asyncio.sleep(5)
            cluster.put(pod("p1"))
            await asyncio.sleep(0.1)
            return placed(cluster)["p1"]

    assert run_virtually(main()) == "n1"


def test_events_that_do_not_fit_are_dropped_and_counted(monkeypatch):
    monkeypatch.setattr("moorage.live.runtime.event_recorder._WAITING", 1000)

    async def main():
        cluster = MemoryCluster([node("n1"), *(pod(f"stuck{i}", cpu="8") for i in range(1100))])
        cluster.faults.append(Trouble("record", None, hold_s=3600, times=4))
        async with running(cluster) as loop:
            await asyncio.sleep(60)
            return loop.dropped_events, len(cluster.notes)

    dropped, told = run_virtually(main())
    assert (dropped, told) == (84, 0)  # four of each lane are being written


def test_no_bind_is_sent_after_the_deadline():
    async def main():
        cluster = MemoryCluster([node("n1"), pod("p1")])
        async with running(cluster, may_act=lambda now: now < 10):
            await asyncio.sleep(20)
            cluster.put(pod("p2"))
            await asyncio.sleep(60)
            return binds(cluster), cluster.requests["bind"]

    assert run_virtually(main()) == (["default/p1"], 1)


def test_shutdown_waits_for_work_in_progress_and_starts_none():
    async def main():
        cluster = MemoryCluster([node("n1"), pod("p1")])
        cluster.faults.append(Trouble("bind", None, hold_s=3))
        async with running(cluster):
            await asyncio.sleep(1)
            cluster.put(pod("p2"))
            cluster.faults.append(Trouble("bind", None, hold_s=100))
            await asyncio.sleep(1)
        end = asyncio.get_running_loop().time()
        return placed(cluster), end

    after, end = run_virtually(main())
    assert after == {"p1": "n1", "p2": ""}
    assert end == pytest.approx(7, abs=0.1)  # two seconds, and five of patience


def test_an_invalid_fact_does_not_stop_the_loop():
    async def main():
        cluster = MemoryCluster([a_node("bad", allocatable={"cpu": "a lot"}), node("n1"), pod("worse", cpu="much"), pod("p1")])
        async with running(cluster) as loop:
            await asyncio.sleep(5)
            return placed(cluster), loop

    after, loop = run_virtually(main())
    assert after["p1"] == "n1"
    assert loop.faults >= 1
    assert any("a lot" in line for line in loop.reports)


def test_attempts_pause_while_too_many_binds_are_in_progress():
    async def main():
        cluster = MemoryCluster([node("n1", cpu="50"), *(pod(f"p{i}") for i in range(20))])
        cluster.faults.append(Trouble("bind", None, hold_s=5, times=20))
        async with running(cluster, limits=LoopLimits(attempts=4, in_flight=8)):
            await asyncio.sleep(3)
            first = cluster.requests["bind"]
            await asyncio.sleep(60)
            return first, all(placed(cluster).values())

    first, done = run_virtually(main())
    assert first <= 12
    assert done


FAULTS = st.lists(
    st.tuples(
        st.sampled_from(["bind", "patch_status", "read_pod", "delete_pod", "record"]),
        st.sampled_from([ClusterError("reset"), ClusterError("504", 504), ClusterError("busy", 429), ClusterError("no", 409)]),
        st.booleans(),
        st.sampled_from([0.0, 0.2, 40.0]),
        st.integers(1, 3),
    ),
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(
    FAULTS, st.sampled_from([0.001, 0.5, 20.0]), st.lists(st.sampled_from(["1", "2"]), min_size=1, max_size=6), st.booleans()
)
def test_api_faults_lose_no_pod_and_overcommit_no_node(faults, lag_s, sizes, gap):
    async def main():
        cluster = MemoryCluster([node(f"n{i}") for i in range(4)], lag_s=lag_s)
        cluster.faults += [Trouble(verb, error, after, hold, times) for verb, error, after, hold, times in faults]
        async with running(cluster) as loop:
            for number, size in enumerate(sizes):
                cluster.put(pod(f"p{number}", cpu=size))
                if gap and number == 1:
                    cluster.stalled = True
                await asyncio.sleep(0.3)
            await asyncio.sleep(50)
            cluster.relist()
            await asyncio.sleep(600)
            return cluster, loop

    cluster, loop = run_virtually(main())
    check_history(cluster, lambda uid: int(sizes[int(uid.rpartition("p")[2])]))
    size_of = {f"p{number}": int(size) for number, size in enumerate(sizes)}
    used = Counter()
    for name, on in placed(cluster).items():
        used[on] += size_of[name]
    roomiest = max(2 - used[f"n{i}"] for i in range(4))
    pending = [one for one in cluster.pods() if not one.spec.node_name]
    assert [one.name for one in pending if size_of[one.name] <= roomiest] == []
    assert {loop.scheduler.queue.get(one.uid) is not None for one in pending} <= {True}
    assert len(loop.scheduler.queue) == len(pending)
    for one in cluster.pods():
        assert (loop.scheduler.cluster.node_of(one.uid) or "") == one.spec.node_name


# -- plugins with work of their own before a bind ---------------------------------------------------------------------------


class Preparing:
    """PreBind yields what it is given; Reserve is written down."""

    name = "Preparing"
    effects: tuple = ()
    log: list

    def reserve(self, state, pod, node):
        self.log.append("reserve")

    def unreserve(self, state, pod, node):
        self.log.append("unreserve")

    def pre_bind(self, state, pod, node):
        return self.effects


def preparing(*effects):
    return type("Preparing", (Preparing,), {"effects": effects, "log": []})


def test_work_for_a_deleted_pod_stops():
    async def main():
        done = []

        async def slow():
            done.append("first")
            await asyncio.sleep(2)

        async def never():
            done.append("second")

        plugin = preparing(Call(slow, lambda: None), Call(never, lambda: None))
        cluster = MemoryCluster([node("n1"), pod("p1")])
        async with running(cluster, plugins=[plugin]) as loop:
            await asyncio.sleep(1)
            cluster.remove(cluster.get(Pod, "default/p1"))
            await asyncio.sleep(5)
            return done, plugin.log, binds(cluster), loop.scheduler

    done, log, bound, scheduler = run_virtually(main())
    assert (done, log, bound) == (["first"], ["reserve", "unreserve"], [])
    assert not scheduler.cluster.assumed


def test_an_awaited_condition_is_polled_each_second_until_deadline_or_deletion():
    async def main(end_s):
        looks = []

        def is_met():
            looks.append(asyncio.get_running_loop().time())
            return False

        plugin = preparing(Until(is_met, 4.5, "waiting for Godot"))
        cluster = MemoryCluster([node("n1"), pod("p1")], lag_s=0)
        async with running(cluster, plugins=[plugin]):
            await asyncio.sleep(end_s)
            cluster.remove(cluster.get(Pod, "default/p1"))
            await asyncio.sleep(20)
            # The first look follows the answer to the nomination.
            return [round(at - looks[0], 3) for at in looks], [note.text for note in cluster.notes], plugin.log

    looks, told, log = run_virtually(main(4.8))
    assert looks == [0, 1, 2, 3, 4, 4.5]
    assert told == ['running PreBind plugin "Preparing": waiting for Godot: context deadline exceeded']
    looks, told, log = run_virtually(main(1.5))
    assert looks == [0, 1]
    assert log == ["reserve", "unreserve"]


def test_a_write_sends_only_the_fields_that_the_plugin_changed():
    async def main():
        sent = []
        seen, wanted = (a_node("n2", labels={"at": at}, allocatable={}) for at in ("first", "second"))
        plugin = preparing(Write(wanted, base=seen))
        cluster = MemoryCluster([node("n1"), pod("p1")])
        write = cluster.write
        cluster.write = lambda old, new, *more: sent.append((old, new)) or write(None, new, *more)
        async with running(cluster, plugins=[plugin]):
            await asyncio.sleep(5)
            return sent == [(seen, wanted)], placed(cluster)

    assert run_virtually(main()) == (True, {"p1": "n1"})


@pytest.mark.parametrize("found", ["elsewhere", "gone", "recreated"])
def test_a_read_back_result_is_used_before_the_watch_event(found):
    async def main():
        cluster = MemoryCluster([node("n1"), pod("p1")], lag_s=0.001)
        async with running(cluster) as loop:
            await asyncio.sleep(1)
            cluster.faults.append(Trouble("bind", None, hold_s=1.0))
            cluster.put(pod("p2"))
            await asyncio.sleep(0.5)
            cluster.stalled = True
            held = cluster.get(Pod, "default/p2")
            cluster.remove(held)
            if found == "elsewhere":
                cluster.put(replace(held, spec=replace(held.spec, node_name="n9")))
            elif found == "recreated":
                cluster.put(pod("p2", uid="second"))
            await asyncio.sleep(30)
            return cluster.requests["bind"], loop.scheduler

    sent, scheduler = run_virtually(main())
    assert sent == (2 if found == "gone" else 5)  # a conflict is sent again three times, a pod that is not found is not
    assert scheduler.queue.get("default/p2") is None
    assert scheduler.cluster.node_of("default/p2") == ("n9" if found == "elsewhere" else None)


def test_an_engine_that_always_fails_does_not_busy_loop():
    async def main():
        cluster = MemoryCluster([node("n1"), pod("p1")])
        async with running(cluster) as loop:
            step = loop.scheduler.step
            loop.scheduler.step = lambda now: 1 / 0
            await asyncio.sleep(60)
            failed = loop.faults
            loop.scheduler.step = step
            await asyncio.sleep(2)
            return failed, placed(cluster)

    failed, after = run_virtually(main())
    assert 60 <= failed <= 80
    assert after == {"p1": "n1"}


# -- what is reported meanwhile ----------------------------------------------------------------------------------------------


def test_the_nominated_node_is_written_during_prebind_and_cleared_on_failure():
    async def main():
        async def slow():
            await asyncio.sleep(2)
            raise ClusterError("no such luck")

        cluster = MemoryCluster([node("n1"), pod("p1")])
        async with running(cluster, plugins=[preparing(Call(slow, lambda: None))]):
            nominated = []
            for _ in range(3):
                await asyncio.sleep(1)
                nominated.append(cluster.get(Pod, "default/p1").status.nominated_node_name)
            return nominated

    assert run_virtually(main()) == ["n1", "n1", ""]


def test_victims_are_evicted_concurrently_except_the_last():
    async def main():
        victims = [pod(f"low{at}", cpu="500m", nodeName="n1", terminationGracePeriodSeconds=60) for at in range(4)]
        cluster = MemoryCluster([node("n1"), *victims], latency_s=1.0)
        async with running(cluster):
            cluster.put(pod("high", cpu="2", priority=100))
            await asyncio.sleep(20)
            return [round(entry.at_s) for entry in cluster.history if entry.verb == "delete_pod"]

    assert run_virtually(main()) == [2, 2, 2, 4]


def test_a_failed_eviction_spares_the_last_victim():
    async def main():
        victims = [pod(f"low{at}", cpu="1", nodeName="n1", terminationGracePeriodSeconds=60) for at in range(2)]
        cluster = MemoryCluster([node("n1"), *victims])
        cluster.faults.append(Trouble("patch_status", ClusterError("500", 500), when=lambda it: it.name.startswith("low")))
        async with running(cluster):
            cluster.put(pod("high", cpu="2", priority=100))
            await asyncio.sleep(0.1)
            return [entry.verb for entry in cluster.history if entry.verb == "delete_pod"], cluster.requests["patch_status"]

    deleted, patches = run_virtually(main())
    assert patches >= 3  # it is tried again at once, with both
    assert len(deleted) == 2


def test_a_victim_with_the_condition_already_set_is_only_deleted():
    async def main():
        cluster = MemoryCluster([node("n1"), pod("low", cpu="2", nodeName="n1", terminationGracePeriodSeconds=1)])
        cluster.faults.append(Trouble("delete_pod", ClusterError("500", 500), hold_s=1.0))
        async with running(cluster):
            cluster.put(pod("high", cpu="2", priority=100))
            await asyncio.sleep(30)
            return cluster

    cluster = run_virtually(main())
    assert placed(cluster) == {"high": "n1"}
    of_victim = [entry.verb for entry in cluster.history if isinstance(entry.obj, Pod) and entry.obj.name == "low"]
    assert of_victim == ["put", "patch_status", "delete_pod", "remove"]
    assert cluster.requests["delete_pod"] == 2


def test_an_unbound_victim_is_reported_and_not_deleted():
    async def main():
        async def slow():
            await asyncio.sleep(60)

        cluster = MemoryCluster([node("n1", cpu="1"), pod("low")])
        plugin = preparing()
        plugin.pre_bind = lambda self, state, pod, node: (Call(slow, lambda: None),) if pod.name == "low" else ()
        async with running(cluster, plugins=[plugin]):
            await asyncio.sleep(1)
            cluster.put(pod("high", priority=100))
            await asyncio.sleep(5)
            return cluster

    cluster = run_virtually(main())
    assert placed(cluster) == {"low": "", "high": "n1"}
    assert cluster.requests.get("delete_pod", 0) == 0
    (note,) = [note for note in cluster.notes if note.reason == "Preempted"]
    assert (note.regarding.name, note.text) == (
        "low",
        "Preempted by pod default/high on node n1 (in kube-scheduler memory).",
    )
