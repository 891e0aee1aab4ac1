"""Pod groups of 1.36, end to end: kube-scheduler's integration tests of gangs, of preemption for them, and of racks they keep
to. What 1.37 still has of them is played with it, too; what it added is in ``test_integration_trees``.
"""

import asyncio

import pytest

from moorage.core.queue.queued_pod import QueuePlace
from moorage.framework.points import PostFilterResult
from moorage.framework.verdicts import Code
from tests.regressions import cluster_objects as on
from tools.simtest.oracle import Terms
from tools.simtest.stage import on_stage

PODS, GROUPS = on.PODS, f"{on.GROUPS}/podgroups"
GATES = {"GenericWorkload": True, "GangScheduling": True}
TOPOLOGY, PREEMPTION = "TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption"
UNJUDGED = Terms(settled=False)


def play(main, *opened, judged=True, release="1.36", **how):
    terms = Terms() if judged else UNJUDGED
    settle_s = 30.0 if judged else 3.0
    gates = GATES if release == "1.36" else {"GenericWorkload": True}
    on_stage(main, opened={**gates, **dict.fromkeys(opened, True)}, terms=terms, settle_s=settle_s, release=release, **how)


def of(stage, group):
    """Return what is said of a group: status and reason of PodGroupScheduled, or of PodGroupInitiallyScheduled since 1.37."""
    held = stage.world.api.do("GET", on.groups_path(stage.world, group))
    types = {"PodGroupScheduled", "PodGroupInitiallyScheduled"}
    found = [one for one in held["status"].get("conditions", ()) if one["type"] in types]
    return (found[0]["status"], found[0]["reason"]) if found else None


SCHEDULED, UNSCHEDULABLE = ("True", "Scheduled"), ("False", "Unschedulable")


def is_unschedulable(stage, name):
    conditions = (stage.pod(name) or {"status": {}})["status"].get("conditions", ())
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)


def is_gated(stage, name):
    pod = stage.pod(name)
    queued = pod and stage.scheduler.queue.get(pod["metadata"]["uid"])
    return queued is not None and queued.place is QueuePlace.GATED


async def unschedulable(stage, *names):
    await stage.until(lambda: all(is_unschedulable(stage, name) for name in names))
    assert not any(stage.node_of(name) for name in names)


async def gated(stage, *names):
    await stage.until(lambda: all(is_gated(stage, name) for name in names))


async def counted(stage, names, placed, waiting):
    """Wait until so many of the pods have nodes, and so many are unschedulable."""

    def is_so():
        free = [name for name in names if not stage.node_of(name)]
        return (len(names) - len(free), sum(is_unschedulable(stage, name) for name in free)) == (placed, waiting)

    await stage.until(is_so)


def block(stage, name="blocker", cpu="2", klass="middle"):
    on.pod(stage.world, name, cpu=cpu, priorityClassName=klass, terminationGracePeriodSeconds=0)


def end(stage, *names):
    for name in names:
        stage.world.delete_pod(name, grace=0)


# -- gangs and groups -----------------------------------------------------------------------------------------------------

P3, P4 = ("p1", "p2", "p3"), ("p1", "p2", "p3", "p4")
MIDDLE = {"priorityClassName": "middle"}


def a_group(stage, name, least=None, **spec):
    """Make a group; since 1.37 it has a class, which is that of its pods."""
    since = MIDDLE if stage.world.api.store.gates.emulated.groups_as_one else {}
    on.pod_group(stage.world, name, least, **since, **spec)


async def a_gang_goes_when_it_fits(stage):
    a_group(stage, "g", 3)
    on.members(stage.world, "g", *P3, **MIDDLE)
    await stage.placed(*P3)
    await stage.until(lambda: of(stage, "g") == SCHEDULED)


async def a_gang_waits_for_its_last_pod(stage):
    a_group(stage, "g", 3)
    on.members(stage.world, "g", "p1", "p2", **MIDDLE)
    await gated(stage, "p1", "p2")
    on.members(stage.world, "g", "p3", **MIDDLE)
    await stage.placed(*P3)


async def a_gang_waits_for_its_group_and_then_for_room(stage):
    block(stage)
    await stage.placed("blocker")
    on.members(stage.world, "g", *P3, **MIDDLE)
    await gated(stage, *P3)
    a_group(stage, "g", 3)
    await unschedulable(stage, *P3)
    await stage.until(lambda: of(stage, "g") == UNSCHEDULABLE)
    end(stage, "blocker")
    await stage.placed(*P3)
    await stage.until(lambda: of(stage, "g") == SCHEDULED)


async def who_is_more_than_needed_waits_for_room(stage):
    block(stage, cpu="1")
    await stage.placed("blocker")
    on.members(stage.world, "g", *P4, **MIDDLE)
    a_group(stage, "g", 3)
    await counted(stage, P4, 3, 1)
    end(stage, "blocker")
    await stage.placed(*P4)


def two_gangs(first):
    async def of_two_gangs_one_goes(stage):
        names = {"g": P3, "h": ("q1", "q2", "q3")}
        for group in names:
            a_group(stage, group, 3)
        order = [first, *(group for group in names if group != first)]
        for turn in range(3):
            for group in order:
                on.members(stage.world, group, names[group][turn], **MIDDLE)
        await stage.until(lambda: any(all(map(stage.node_of, pods)) for pods in names.values()))
        (loser,) = [pods for pods in names.values() if not stage.node_of(pods[0])]
        await unschedulable(stage, *loser)
        assert {of(stage, group) for group in names} == {SCHEDULED, UNSCHEDULABLE}

    return of_two_gangs_one_goes


async def a_gang_preempts(stage):
    block(stage, klass="low")
    await stage.placed("blocker")
    a_group(stage, "g", 3)
    on.members(stage.world, "g", *P3, **MIDDLE)
    await stage.placed(*P3)
    await stage.until(lambda: of(stage, "g") == SCHEDULED)
    assert stage.pod("blocker") is None


async def a_basic_group_goes_pod_by_pod(stage):
    a_group(stage, "g")
    on.members(stage.world, "g", "p1", **MIDDLE)
    await stage.placed("p1")
    on.members(stage.world, "g", "p2", "p3", **MIDDLE)
    await stage.placed("p2", "p3")


async def a_basic_group_goes_in_part(stage):
    block(stage)
    await stage.placed("blocker")
    on.members(stage.world, "g", *P3, **MIDDLE)
    await gated(stage, *P3)
    a_group(stage, "g")
    await counted(stage, P3, 2, 1)
    end(stage, "blocker")
    await stage.placed(*P3)


async def a_basic_group_preempts(stage):
    block(stage, klass="low")
    await stage.placed("blocker")
    a_group(stage, "g")
    on.members(stage.world, "g", *P3, **MIDDLE)
    await stage.placed(*P3)
    assert stage.pod("blocker") is None


GROUPS_OF_PODS = {
    "a gang goes when it fits": a_gang_goes_when_it_fits,
    "a gang waits for its last pod": a_gang_waits_for_its_last_pod,
    "a gang waits for its group, then for room": a_gang_waits_for_its_group_and_then_for_room,
    "who is more than needed waits for room": who_is_more_than_needed_waits_for_room,
    "of two gangs one goes": two_gangs("g"),
    "of two gangs one goes, the other way round": two_gangs("h"),
    "a gang preempts": a_gang_preempts,
    "a basic group goes pod by pod": a_basic_group_goes_pod_by_pod,
    "a basic group goes in part": a_basic_group_goes_in_part,
    "a basic group preempts": a_basic_group_preempts,
}


@pytest.mark.parametrize("topology", [(), (TOPOLOGY,)], ids=["plain", "by placement"])
@pytest.mark.parametrize("scenario", GROUPS_OF_PODS.values(), ids=GROUPS_OF_PODS)
@pytest.mark.parametrize("release", ["1.36", "1.37"])
def test_groups_of_pods(scenario, topology, release):
    async def main(stage):
        on.node(stage.world, "n", {"zone": "z"}, cpu="4")
        await scenario(stage)

    play(main, *topology, release=release)


# -- preemption for groups as a whole -------------------------------------------------------------------------------------

LOW3, HIGH2, HIGH3, HIGH4 = "abc", ("h1", "h2"), ("h1", "h2", "h3"), ("h1", "h2", "h3", "h4")


def pods_on(node, *pods):
    """Spell pods that are there: name, CPU, priority class, group."""
    return [(*pod, *("",) * (4 - len(pod)), node) for pod in pods]


def low(*names, cpu="1"):
    return [(name, cpu, "low") for name in names]


#: CPUs of the nodes; placed pods; groups other than the preemptor's; its own group (least, class); its pods with CPU and class;
#: the victims; the pods that stay without a node.
PREEMPTING = {
    "all have to go": ({"n": 3}, pods_on("", *low("a", "b", "c")), {}, (3, "high"), HIGH3, ("1", "high"), "abc", ""),
    "all have to go for a basic group": (
        {"n": 3}, pods_on("", *low("a", "b", "c")), {}, (None, "high"), HIGH3, ("1", "high"), "abc", ""),
    "one of two is enough": (
        {"n": 2, "m": 2}, [*pods_on("n", *low("a", cpu="2")), *pods_on("m", *low("b"))], {}, (3, "high"), HIGH3,
        ("1", "high"), "a", ""),
    "the least important of two is enough for a basic group": (
        {"n": 2, "m": 2}, [*pods_on("n", ("a", "1", "middle")), *pods_on("m", ("b", "2", "low"))], {}, (None, "high"), HIGH3,
        ("1", "high"), "b", ""),
    "on several nodes": (
        {"n": 2, "m": 2}, [*pods_on("n", *low("a", "b")), *pods_on("m", *low("c", "d"))], {}, (4, "high"), HIGH4,
        ("1", "high"), "abcd", ""),
    "no victim, as it would not be enough": (
        {"n": 3}, pods_on("", ("a", "1", "high"), *low("b", "c")), {}, (3, "middle"), HIGH3, ("1", "middle"), "", HIGH3),
    "the less important": (
        {"n": 3}, pods_on("", ("a", "1", "middle"), *low("b", "c")), {}, (2, "high"), HIGH2, ("1", "high"), "bc", ""),
    "a group that goes as one": (
        {"n": 3}, pods_on("", *[(name, "1", "low", "old") for name in LOW3]), {"old": (3, "low", "PodGroup")}, (1, "high"),
        ("h1",), ("1", "high"), "abc", ""),
    "a basic group that goes as one": (
        {"n": 3}, pods_on("", *[(name, "1", "low", "old") for name in LOW3]), {"old": (None, "low", "PodGroup")}, (1, "high"),
        ("h1",), ("1", "high"), "abc", ""),
    "by the priority of groups, not of their pods": (
        {"n": 3}, pods_on("", *[(name, "1", "high", "old") for name in LOW3]), {"old": (3, "low", "PodGroup")}, (1, "high"),
        ("h1",), ("1", "low"), "abc", ""),
    "no victim, as the group has a lower priority": (
        {"n": 3}, pods_on("", *[(name, "1", "low", "old") for name in LOW3]), {"old": (3, "high", "PodGroup")}, (1, "low"),
        ("h1",), ("1", "high"), "", ("h1",)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "there", "groups", "own", "pods", "spec", "gone", "waiting"), PREEMPTING.values(), ids=PREEMPTING
)
def test_the_victims_of_a_group(nodes, there, groups, own, pods, spec, gone, waiting):
    async def main(stage):
        for name, cpu in nodes.items():
            on.node(stage.world, name, {"name": name}, cpu=str(cpu))
        for name, (least, klass, mode) in groups.items():
            on.pod_group(stage.world, name, least, priorityClassName=klass, disruptionMode=mode)
        for name, cpu, klass, group, node in there:
            more = {"schedulingGroup": {"podGroupName": group}} if group else {}
            more |= {"nodeSelector": {"name": node}} if node else {}
            on.pod(stage.world, name, cpu=cpu, priorityClassName=klass, terminationGracePeriodSeconds=0, **more)
        names = [name for name, *_ in there]
        await stage.placed(*names)
        least, klass = own
        on.pod_group(stage.world, "mine", least, priorityClassName=klass)
        on.members(stage.world, "mine", *pods, cpu=spec[0], priorityClassName=spec[1])
        if waiting:
            await unschedulable(stage, *waiting)
            await asyncio.sleep(15)
        else:
            await stage.placed(*pods)
        assert [name for name in names if stage.pod(name) is None] == list(gone)
        assert not any(stage.node_of(name) for name in waiting)

    play(main, PREEMPTION, judged=False)


def test_pods_with_a_budget_are_evicted_last():
    async def main(stage):
        on.node(stage.world, "n", cpu="3")
        for name, labels in (("a", {"app": "guarded"}), ("b", {"app": "guarded"}), ("c", {})):
            on.pod(stage.world, name, labels, cpu="1", priorityClassName="low", terminationGracePeriodSeconds=0)
        await stage.placed("a", "b", "c")
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "guarded"}}}
        on.create(stage.world, path, "PodDisruptionBudget", "policy/v1", metadata={"name": "guard"}, spec=spec)
        on.pod_group(stage.world, "mine", 2, priorityClassName="high")
        on.members(stage.world, "mine", *HIGH2, cpu="500m", priorityClassName="high")
        await stage.placed(*HIGH2)
        assert [name for name in "abc" if stage.pod(name) is None] == ["c"]

    play(main, PREEMPTION, judged=False)


def test_a_pod_of_no_group_takes_pods_one_by_one():
    async def main(stage):
        on.node(stage.world, "n", cpu="3")
        on.pod_group(stage.world, "old", 1, priorityClassName="low", disruptionMode="PodGroup")
        for name, klass in (("a", "polite"), ("b", "middle"), ("c", "low")):
            on.members(stage.world, "old", name, priorityClassName=klass, terminationGracePeriodSeconds=0)
        await stage.placed("a", "b", "c")
        on.pod(stage.world, "h1", cpu="1", priorityClassName="high")
        await stage.placed("h1")
        assert [name for name in "abc" if stage.pod(name) is None] == ["c"]

    play(main, PREEMPTION, judged=False)


def test_a_gang_evicts_the_fewest_pods_it_needs():
    async def main(stage):
        on.node(stage.world, "n", cpu="4")
        for name, klass in (("a", "low"), ("b", "low"), ("c", "middle"), ("d", "middle")):
            block(stage, name, "1", klass)
        await stage.placed("a", "b", "c", "d")
        on.pod_group(stage.world, "g", 2, priorityClassName="high")
        on.members(stage.world, "g", "p1", "p2", priorityClassName="high")
        await stage.placed("p1", "p2")
        assert [name for name in "abcd" if stage.pod(name) is None] == ["a", "b"]

    play(main, PREEMPTION, judged=False)


def test_a_gang_is_retried_after_a_partial_preemption():
    async def main(stage):
        on.node(stage.world, "n", cpu="2")
        on.pod(stage.world, "a", cpu="1", priorityClassName="low")
        on.pod(stage.world, "b", cpu="1", priorityClassName="high")
        await stage.placed("a", "b")
        on.pod_group(stage.world, "g", 2)
        on.members(stage.world, "g", "p1", "p2", **MIDDLE)
        await stage.until(lambda: stage.pod("a") is None)
        await asyncio.sleep(5)
        assert not stage.node_of("p1")
        end(stage, "b")
        await stage.placed("p1", "p2")

    play(main)


@pytest.mark.parametrize("opened", [(TOPOLOGY,), (TOPOLOGY, PREEMPTION)], ids=["pod by pod", "as a whole"])
def test_a_group_with_topology_constraints_does_not_preempt(opened):
    async def main(stage):
        on.node(stage.world, "n", {"zone": "z"}, cpu="4")
        for name in "abcd":
            block(stage, name, "1", "low")
        await stage.placed(*"abcd")
        on.pod_group(stage.world, "g", 2, together="zone", priorityClassName="high")
        on.members(stage.world, "g", "p1", "p2", priorityClassName="high")
        await unschedulable(stage, "p1", "p2")
        await asyncio.sleep(15)
        assert all(map(stage.node_of, "abcd"))

    play(main, *opened, judged=False)


# -- racks ------------------------------------------------------------------------------------------------------------------


def racks(stage, **shape):
    """Make racks of so many nodes with 2 CPUs each; a letter of the name is the zone."""
    for rack, count in shape.items():
        for number in range(count):
            on.node(stage.world, f"{rack}-{number}", {"rack": rack, "zone": f"zone-{rack[0]}"}, cpu="2")


def rack_of(stage, *names):
    return {stage.node_of(name).partition("-")[0] for name in names}


#: Racks (nodes); CPUs taken by others, by node; groups in turn: key, least, pods, CPU of each; then for each group how many of
#: its pods are placed, and on which racks they may all be.
RACKS = {
    "one rack has room": ({"a": 1, "b": 2}, {}, [("rack", 3, 3, "1", 3, {"b"})]),
    "no rack has room": ({"a": 1, "b": 1}, {}, [("rack", 3, 3, "1", 0, set())]),
    "no rack has room left": ({"a": 2, "b": 2}, {"a-0": "2", "b-0": "2"}, [("rack", 3, 3, "1", 0, set())]),
    "the rack that is fuller then": ({"a": 3, "b": 2}, {}, [("rack", 3, 3, "1", 3, {"b"})]),
    "the rack that is fuller then, with what is there": (
        {"a": 3, "b": 3}, {"a-0": "1", "b-0": "2"}, [("rack", 3, 3, "1", 3, {"b"})],
    ),
    "two gangs, two racks": ({"a": 2, "b": 2}, {}, [("rack", 3, 3, "1", 3, {"a", "b"}), ("rack", 3, 3, "1", 3, {"a", "b"})]),
    "two gangs, one rack": ({"a": 1, "b": 3}, {}, [("rack", 3, 3, "1", 3, {"b"}), ("rack", 3, 3, "1", 3, {"b"})]),
    "two gangs, room for one": ({"a": 2, "b": 1}, {}, [("rack", 3, 3, "1", 3, {"a"}), ("rack", 3, 3, "1", 0, set())]),
    "another key": ({"a1": 1, "a2": 1, "b": 1}, {}, [("zone", 4, 4, "1", 4, {"a1", "a2"}), ("rack", 2, 2, "1", 2, {"b"})]),
    "more pods than needed": ({"a": 1, "b": 2}, {}, [("rack", 2, 3, "1", 3, {"b"})]),
    "more pods than fit": ({"a": 1, "b": 2}, {}, [("rack", 3, 5, "1", 4, {"b"})]),
    "a basic group on the only rack": ({"a": 2}, {}, [("rack", None, 3, "1", 3, {"a"})]),
    "a basic group on one of two racks": ({"a": 2, "b": 2}, {}, [("rack", None, 4, "1", 4, {"a", "b"})]),
    "a basic group of which some fit": ({"a": 1, "b": 1}, {}, [("rack", None, 3, "1", 2, {"a", "b"})]),
    "a basic group of which none fits": ({"a": 1, "b": 1}, {}, [("rack", None, 2, "3", 0, set())]),
    "a basic group where it is fuller then": ({"a": 3, "b": 2}, {}, [("rack", None, 3, "1", 3, {"b"})]),
    "two basic groups": ({"a": 2, "b": 2}, {}, [("rack", None, 4, "1", 4, {"a", "b"}), ("rack", None, 4, "1", 4, {"a", "b"})]),
    "two basic groups on the only rack": ({"a": 3}, {}, [("rack", None, 3, "1", 3, {"a"}), ("rack", None, 3, "1", 3, {"a"})]),
}  # fmt: skip


@pytest.mark.parametrize(("shape", "taken", "groups"), RACKS.values(), ids=RACKS)
@pytest.mark.parametrize("release", ["1.36", "1.37"])
def test_groups_are_placed_within_one_rack(shape, taken, groups, release):
    async def main(stage):
        racks(stage, **shape)
        for node, cpu in taken.items():
            on.pod(stage.world, f"on-{node}", cpu=cpu, priorityClassName="middle")
            stage.world.bind(f"on-{node}", node)
        for number, (key, least, size, cpu, placed, allowed) in enumerate(groups):
            pods = [f"g{number}-p{turn}" for turn in range(size)]
            a_group(stage, f"g{number}", least, together=key)
            on.members(stage.world, f"g{number}", *pods, cpu=cpu, **MIDDLE)
            await counted(stage, pods, placed, size - placed)
            there = rack_of(stage, *(name for name in pods if stage.node_of(name)))
            assert there <= allowed
            assert key != "rack" or len(there) == min(placed, 1)

    play(main, TOPOLOGY, judged=False, release=release)


def test_a_basic_group_continues_in_its_placement():
    async def main(stage):
        racks(stage, a=1, b=1)
        on.pod(stage.world, "blocker", cpu="1", priorityClassName="middle", nodeSelector={"rack": "a"})
        await stage.placed("blocker")
        on.pod_group(stage.world, "g", together="rack")
        on.members(stage.world, "g", "p1", **MIDDLE)
        await stage.placed("p1")
        assert rack_of(stage, "p1") == {"a"}
        on.members(stage.world, "g", "p2", **MIDDLE)
        await unschedulable(stage, "p2")
        end(stage, "blocker")
        await stage.placed("p2")
        assert rack_of(stage, "p1", "p2") == {"a"}

    play(main, TOPOLOGY, judged=False)


# -- conditions, and requests ------------------------------------------------------------------------------------------


class Asked:
    """Finds nothing, and counts how often it is asked."""

    name = "Asked"
    count = 0

    def post_filter(self, pod, attempt):
        type(self).count += 1
        return PostFilterResult(Code.UNSCHEDULABLE, ("nothing",))


def test_post_filter_runs_once_for_each_pod_of_a_preempting_group():
    mine = type("Asked", (Asked,), {})

    async def main(stage):
        on.node(stage.world, "n", cpu="4")
        for name in "abcd":
            block(stage, name, "1", "low")
        await stage.placed(*"abcd")
        on.pod_group(stage.world, "g", 3, priorityClassName="high", disruptionMode="PodGroup")
        on.members(stage.world, "g", *HIGH3, priorityClassName="high")
        await stage.until(lambda: sum(stage.pod(name) is None for name in "abcd") >= 3)
        assert mine.count == 3
        (uid,) = {group["metadata"]["uid"] for group in stage.world.api.items(GROUPS)}

        def told():
            events = stage.world.api.items("/apis/events.k8s.io/v1/namespaces/default/events")
            return [one["note"] for one in events if one["reason"] == "Preempted"]

        await stage.until(lambda: len(told()) == 3)
        assert all(note.startswith(f"Preempted by podgroup {uid} on node ") for note in told())

    order = "profiles:\n- plugins: {postFilter: {enabled: [{name: Asked}], disabled: []}}\n"
    on_stage(main, mine, opened={**GATES, PREEMPTION: True}, profiles=order, release="1.36", terms=UNJUDGED, settle_s=3.0)


WAKES = {  # pods of the group that are there; what happens
    "a pod of the group comes": (("p1",), lambda world: on.members(world, "g", "p2")),
    "the group comes": (("p1", "p2"), lambda world: on.pod_group(world, "g", 2)),
}


@pytest.mark.parametrize(("there", "happens"), WAKES.values(), ids=WAKES)
def test_pods_that_wait_for_a_gang_are_woken(there, happens):
    async def main(stage):
        on.node(stage.world, "n", cpu="4")
        if there == ("p1",):
            on.pod_group(stage.world, "g", 2)
        on.members(stage.world, "g", *there)
        on.members(stage.world, "another", "q")
        await gated(stage, *there, "q")
        happens(stage.world)
        await stage.placed("p1", "p2", within_s=3.0)
        assert is_gated(stage, "q")

    play(main)


# -- what is not seen to be done ------------------------------------------------------------------------------------------


def test_pod_groups_are_neither_watched_nor_written_without_the_gate():
    async def main(stage):
        stage.world.node("n")
        stage.world.pod("p", schedulingGroup={"podGroupName": "g"})
        await stage.placed("p")
        assert not stage.requests("GET", "podgroups")

    on_stage(main)


def test_a_group_condition_write_delays_no_bind():
    async def main(stage):
        on.node(stage.world, "n", cpu="4")
        stage.spoil("PATCH status", hold_s=8.0)
        on.pod_group(stage.world, "g", 2)
        on.members(stage.world, "g", "p1", "p2")
        begin = stage.now
        await stage.placed("p1", "p2", within_s=5.0)
        assert stage.now - begin < 2.0
        await stage.until(lambda: of(stage, "g") == SCHEDULED)

    play(main)
