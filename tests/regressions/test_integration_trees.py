"""Pod groups of 1.37, end to end: kube-scheduler's integration tests of groups of groups, of how groups wait and are woken, of
racks that a tree keeps to, and of what the pods of a group may not share."""

import asyncio

import pytest

from tests.regressions import cluster_objects as on
from tests.regressions.test_integration_pod_groups import MIDDLE, P3, a_group, block, counted, end, is_gated, unschedulable
from tools.simtest.oracle import Terms
from tools.simtest.stage import on_stage

GATES = dict.fromkeys(["GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup"], True)


def play(main, *plugins, **how):
    on_stage(main, *plugins, opened=GATES, release="1.37", terms=Terms(settled=False), settle_s=1.0, **how)


def a_tree(stage, name, least=None, **spec):
    on.group_of_groups(stage.world, name, least, **MIDDLE, **spec)


def crew(stage, group, *names, cpu="1", **spec):
    on.members(stage.world, group, *names, cpu=cpu, **MIDDLE, **spec)


async def never_placed(stage, *names, for_s=15.0):
    await asyncio.sleep(for_s)
    assert not any(stage.node_of(name) for name in names)


def change_least(stage, group, least):
    on.patch(stage.world, on.groups_path(stage.world, group), spec={"schedulingPolicy": {"gang": {"minCount": least}}})


# -- groups of pods ----------------------------------------------------------------------------------------------------


async def a_lower_minimum_completes_a_gang(stage):
    a_group(stage, "g", 3)
    crew(stage, "g", "p1", "p2")
    await never_placed(stage, "p1", "p2", for_s=3)
    change_least(stage, "g", 2)
    await stage.placed("p1", "p2")


async def a_lower_minimum_makes_a_gang_fit(stage):
    a_group(stage, "g", 3)
    crew(stage, "g", *P3, cpu="2")
    await unschedulable(stage, *P3)
    change_least(stage, "g", 2)
    await counted(stage, P3, 2, 1)


async def a_higher_minimum_wakes_none(stage):
    a_group(stage, "g", 3)
    crew(stage, "g", "p1", "p2")
    change_least(stage, "g", 4)
    crew(stage, "g", "p3")
    await never_placed(stage, *P3)


async def a_single_pod_goes_between_groups(stage):
    block(stage, cpu="1")
    await stage.placed("blocker")
    a_group(stage, "g", 4)
    crew(stage, "g", "p1", "p2")
    on.pod(stage.world, "single", cpu="1", **MIDDLE)
    crew(stage, "g", "p3", "p4")
    await stage.placed("single")
    end(stage, "single", "blocker")
    await stage.placed("p1", "p2", "p3", "p4")


def gated_member(least):
    async def one_gated_pod_holds_the_group(stage):
        a_group(stage, "g", least)
        crew(stage, "g", "p1", "p2")
        crew(stage, "g", "p3", schedulingGates=[{"name": "example.com/wait"}])
        if least == 3:
            await never_placed(stage, *P3, for_s=4)
        assert not stage.node_of("p3")
        on.patch(stage.world, f"{on.PODS}/p3", spec={"schedulingGates": []})
        await stage.placed(*P3)

    return one_gated_pod_holds_the_group


def later_member(least):
    async def a_later_pod_joins(stage):
        a_group(stage, "g", least)
        crew(stage, "g", "p1", "p2")
        await stage.placed("p1", "p2")
        crew(stage, "g", "p3")
        await stage.placed("p3")

    return a_later_pod_joins


def deleted_group(least, fits):
    async def pods_of_a_group_that_is_gone_wait_for_it(stage):
        """The finalizer of a group goes when it has no pods; here it is taken off, as by hand."""
        if not fits:
            block(stage, cpu="4")
            await stage.placed("blocker")
        a_group(stage, "g", least)
        crew(stage, "g", "p1", "p2")
        await (stage.placed("p1", "p2") if fits else unschedulable(stage, "p1", "p2"))
        on.patch(stage.world, on.groups_path(stage.world, "g"), metadata={"finalizers": []})
        on.drop(stage.world, on.groups_path(stage.world, "g"))
        crew(stage, "g", "late")
        waiting = ("late",) if fits else ("late", "p1", "p2")
        end(stage, "blocker") if not fits else None
        await stage.until(lambda: all(is_gated(stage, name) for name in waiting))
        a_group(stage, "g", least)
        await stage.placed(*waiting)

    return pods_of_a_group_that_is_gone_wait_for_it


async def a_higher_priority_before_who_is_left_over(stage):
    """A gang of which one pod is left over: of it and a single pod of a higher priority, the latter goes first."""
    a_group(stage, "g", 2)
    crew(stage, "g", *P3, cpu="1500m")
    await counted(stage, P3, 2, 1)
    on.pod(stage.world, "single", cpu="1", priorityClassName="high")
    await stage.placed("single")


GROUPS = {
    "a lower minimum completes a gang": a_lower_minimum_completes_a_gang,
    "a lower minimum makes a gang fit": a_lower_minimum_makes_a_gang_fit,
    "a higher minimum wakes none": a_higher_minimum_wakes_none,
    "a single pod goes between groups": a_single_pod_goes_between_groups,
    "a gated pod holds a gang": gated_member(3),
    "a gated pod of a basic group": gated_member(None),
    "a later pod of a gang": later_member(2),
    "a later pod of a basic group": later_member(None),
    "a gang that is placed and whose group is gone": deleted_group(2, fits=True),
    "a basic group that is placed and gone": deleted_group(None, fits=True),
    "a gang that waits and whose group is gone": deleted_group(2, fits=False),
    "a basic group that waits and is gone": deleted_group(None, fits=False),
    "a higher priority before who is left over": a_higher_priority_before_who_is_left_over,
}


@pytest.mark.parametrize("scene", GROUPS.values(), ids=GROUPS)
def test_how_groups_wait_and_are_woken(scene):
    async def main(stage):
        on.node(stage.world, "n", {"zone": "z"}, cpu="4")
        await scene(stage)

    play(main)


class Failing:
    """Fails the first time that a pod is about to be bound. (One that always fails is tried again at once, as in 1.37.)"""

    name, count = "Failing", 0

    def pre_bind(self, state, pod, node):
        type(self).count += 1
        if type(self).count == 1:
            raise RuntimeError("not yet")
        return ()


@pytest.mark.parametrize("least", [2, None], ids=["gang", "basic"])
@pytest.mark.parametrize("names", [("p1",), ("p1", "p2")], ids=["one pod", "two pods"])
def test_a_member_that_fails_before_it_is_bound_is_tried_again(least, names):
    plugin = type("Failing", (Failing,), {"count": 0})

    async def main(stage):
        on.node(stage.world, "n", cpu="4")
        a_group(stage, "g", least and len(names))
        crew(stage, "g", *names)
        await stage.placed(*names)
        assert plugin.count == len(names) + 1

    play(main, plugin, profiles="profiles:\n- plugins: {preBind: {enabled: [{name: Failing}]}}\n")


# -- what pods of a group may not share -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("zones", "placed"), [(("a", "b"), 2), (("a", "a"), 0)], ids=["two zones", "one zone"])
def test_pods_of_a_gang_that_repel_each_other(zones, placed):
    async def main(stage):
        for number, zone in enumerate(zones):
            on.node(stage.world, f"n{number}", {"zone": zone}, cpu="4")
        a_group(stage, "g", 2)
        for name in ("p1", "p2"):
            on.pod(
                stage.world, name, {"role": "x"}, cpu="1", schedulingGroup={"podGroupName": "g"}, **MIDDLE,
                **on.away("role", "zone"),
            )  # fmt: skip
        await (stage.placed("p1", "p2") if placed else unschedulable(stage, "p1", "p2"))

    play(main)


@pytest.mark.parametrize(("zones", "placed"), [(("a", "b"), 2), (("a", "a"), 0)], ids=["two zones", "one zone"])
def test_a_pod_of_a_gang_that_alone_repels_the_others(zones, placed):
    async def main(stage):
        for number, zone in enumerate(zones):
            on.node(stage.world, f"n{number}", {"zone": zone}, cpu="4")
        a_group(stage, "g", 2)
        common = {"cpu": "1", "schedulingGroup": {"podGroupName": "g"}, **MIDDLE}
        on.pod(stage.world, "p1", **common, **on.away("role", "zone"))
        on.pod(stage.world, "p2", {"role": "x"}, **common)
        await (stage.placed("p1", "p2") if placed else unschedulable(stage, "p1", "p2"))

    play(main)


@pytest.mark.parametrize("claims", [("a", "a"), ("a", "b")], ids=["one claim", "two claims"])
def test_a_claim_for_one_pod_alone_keeps_a_gang_waiting(claims):
    async def main(stage):
        on.node(stage.world, "n", cpu="4")
        for name in {*claims}:
            on.volume(stage.world, f"v-{name}", modes=("ReadWriteOncePod",))
            on.claim(stage.world, name, bound_to=f"v-{name}", modes=("ReadWriteOncePod",))
        a_group(stage, "g", 2)
        for name, claim in zip(("p1", "p2"), claims, strict=True):
            crew(stage, "g", name, **on.using(claim))
        await (unschedulable(stage, "p1", "p2") if claims[0] == claims[1] else stage.placed("p1", "p2"))

    play(main)


# -- trees ---------------------------------------------------------------------------------------------------------------

#: The tree (its minimum), its groups (their minimum) with the CPUs of their pods; the pods that are placed on a node of 4 CPUs.
TREES = {
    "a gang of gangs that fit": (2, {"g": (2, 2, "1"), "h": (2, 2, "1")}, 4),
    "a gang of gangs of which one does not fit": (2, {"g": (2, 2, "1"), "h": (2, 2, "2")}, 0),
    "a minimum of groups": (1, {"g": (2, 2, "1"), "h": (2, 2, "3")}, 2),
    "a basic tree of gangs": (None, {"g": (2, 2, "1"), "h": (2, 2, "3")}, 2),
    "a basic tree of basic groups": (None, {"g": (None, 2, "1"), "h": (None, 3, "1")}, 4),
    "a gang of basic groups": (2, {"g": (None, 2, "1"), "h": (None, 2, "1")}, 4),
    "a basic tree of basic groups that do not fit": (None, {"g": (None, 1, "5"), "h": (None, 1, "5")}, 0),
}


@pytest.mark.parametrize(("least", "groups", "placed"), TREES.values(), ids=TREES)
def test_groups_of_a_tree_go_together(least, groups, placed):
    async def main(stage):
        on.node(stage.world, "n", cpu="4")
        a_tree(stage, "tree", least)
        names = []
        for group, (minimum, count, cpu) in groups.items():
            a_group(stage, group, minimum, parent="tree")
            mine = [f"{group}-{at}" for at in range(count)]
            crew(stage, group, *mine, cpu=cpu)
            names += mine
        await stage.until(lambda: sum(bool(stage.node_of(name)) for name in names) == placed)
        await asyncio.sleep(5)
        assert sum(bool(stage.node_of(name)) for name in names) == placed

    play(main)


def test_a_tree_of_three_levels_goes_at_once():
    async def main(stage):
        on.node(stage.world, "n", cpu="4")
        a_tree(stage, "root", 2)
        for half in ("left", "right"):
            a_tree(stage, half, 1, parent="root")
            a_group(stage, f"{half}-g", 2, parent=half)
        crew(stage, "left-g", "l1", "l2")
        await never_placed(stage, "l1", "l2", for_s=4)
        crew(stage, "right-g", "r1", "r2")
        await stage.placed("l1", "l2", "r1", "r2")

    play(main)


async def its_root(stage):
    a_group(stage, "g", 1, parent="tree")
    crew(stage, "g", "p1")
    await stage.until(lambda: is_gated(stage, "p1"))
    a_tree(stage, "tree", 1)


async def another_group(stage):
    a_tree(stage, "tree", 2)
    a_group(stage, "g", 1, parent="tree")
    crew(stage, "g", "p1")
    await never_placed(stage, "p1", for_s=3)
    a_group(stage, "h", 1, parent="tree")
    crew(stage, "h", "q1")


async def another_pod(stage):
    a_tree(stage, "tree", 2)
    a_group(stage, "g", 1, parent="tree")
    a_group(stage, "h", 1, parent="tree")
    crew(stage, "g", "p1")
    await never_placed(stage, "p1", for_s=3)
    crew(stage, "h", "q1")


async def a_lower_minimum(stage):
    a_tree(stage, "tree", 1)
    a_group(stage, "g", 2, parent="tree")
    crew(stage, "g", "p1")
    await never_placed(stage, "p1", for_s=3)
    change_least(stage, "g", 1)


async def another_node(stage):
    a_tree(stage, "tree", 1)
    a_group(stage, "g", 1, parent="tree")
    crew(stage, "g", "p1", nodeSelector={"disk": "fast"})
    await unschedulable(stage, "p1")
    on.node(stage.world, "m", {"disk": "fast"}, cpu="4")


AWAITED = {
    "its root": its_root, "another group": another_group, "another pod": another_pod, "a lower minimum": a_lower_minimum,
    "another node": another_node,
}  # fmt: skip


@pytest.mark.parametrize("scene", AWAITED.values(), ids=AWAITED)
def test_what_a_tree_waits_for_wakes_it(scene):
    async def main(stage):
        on.node(stage.world, "n", cpu="4")
        await scene(stage)
        await stage.placed("p1")

    play(main)


# -- racks of a tree -----------------------------------------------------------------------------------------------------


def racks(stage, **shape):
    """Make racks of so many nodes with 2 CPUs each; the first letter of the name is the zone, the first two are the block."""
    for rack, count in shape.items():
        for number in range(count):
            labels = {"rack": rack, "block": rack[:2], "zone": rack[0]}
            on.node(stage.world, f"{rack}-{number}", labels, cpu="2")


#: Racks; CPUs taken, by node; the keys of the tree, of a group of groups below it ("" without one) and of the two groups; the
#: pods of each group with their CPUs; what all pods that are placed share, and what those of one group share; how many go.
WITHIN = {
    "the tree keeps to a rack": ({"aa1": 1, "bb1": 2}, {}, ("rack", None, "", ""), 2, ("rack", "rack"), 4),
    "no rack fits all": ({"aa1": 1, "bb1": 1}, {}, ("rack", None, "", ""), 2, ("rack", "rack"), 0),
    "zone and racks": ({"aa1": 1, "aa2": 1, "bb1": 1}, {}, ("zone", None, "rack", "rack"), 2, ("zone", "rack"), 4),
    "one group has no constraint of its own": (
        {"aa1": 1, "aa2": 1, "bb1": 1}, {}, ("zone", None, "rack", ""), 2, ("zone", ""), 4,
    ),
    "three levels": (
        {"aa1": 1, "aa2": 1, "ab1": 1, "bb1": 1}, {}, ("zone", "block", "rack", "rack"), 2, ("block", "rack"), 4,
    ),
    "none in the middle": ({"aa1": 1, "ab1": 1, "bb1": 1}, {}, ("zone", "", "rack", "rack"), 2, ("zone", "rack"), 4),
    "none at the top": ({"aa1": 1, "aa2": 1, "bb1": 1}, {}, ("", "zone", "rack", "rack"), 2, ("zone", "rack"), 4),
    "none at the bottom": ({"aa1": 2, "bb1": 1}, {}, ("zone", "rack", "", ""), 2, ("rack", "rack"), 4),
    "what others took": ({"aa1": 2, "bb1": 2}, {"aa1-0": "2"}, ("rack", None, "", ""), 2, ("rack", "rack"), 4),
}  # fmt: skip


@pytest.mark.parametrize(("shape", "taken", "keys", "count", "shared", "placed"), WITHIN.values(), ids=WITHIN)
def test_a_tree_keeps_to_its_racks(shape, taken, keys, count, shared, placed):
    async def main(stage):
        racks(stage, **shape)
        for node, cpu in taken.items():
            on.pod(stage.world, f"on-{node}", cpu=cpu, **MIDDLE)
            stage.world.bind(f"on-{node}", node)
        top, middle, *own = keys
        a_tree(stage, "tree", 1 if middle is not None else 2, together=top)
        if middle is not None:
            a_tree(stage, "inner", 2, together=middle, parent="tree")
        names = {}
        for group, key in zip("gh", own, strict=True):
            a_group(stage, group, count, together=key, parent="tree" if middle is None else "inner")
            names[group] = [f"{group}-{at}" for at in range(count)]
            crew(stage, group, *names[group])
        every = [name for mine in names.values() for name in mine]
        await stage.until(lambda: sum(bool(stage.node_of(name)) for name in every) == placed)
        await asyncio.sleep(4)
        where = {name: stage.node_of(name) for name in every if stage.node_of(name)}
        assert len(where) == placed
        assert len(shares(where.values(), shared[0])) <= 1
        for mine in names.values() if shared[1] else ():
            assert len(shares([where[name] for name in mine if name in where], shared[1])) <= 1

    play(main)


def shares(nodes, key):
    """Return the values of a label that nodes have, by the shape of their names."""
    length = {"zone": 1, "block": 2, "rack": 3}[key]
    return {name[:length] for name in nodes}


def test_a_pod_that_runs_decides_where_its_tree_is():
    async def main(stage):
        racks(stage, aa1=2, bb1=3)
        a_tree(stage, "tree", 1, together="rack")
        a_group(stage, "g", 1, parent="tree")
        crew(stage, "g", "first")
        stage.world.bind("first", "aa1-0")
        a_group(stage, "h", 2, parent="tree")
        crew(stage, "h", "h-0", "h-1")
        await stage.placed("h-0", "h-1")
        assert shares([stage.node_of("h-0"), stage.node_of("h-1")], "rack") == {"aa1"}

    play(main)


def test_a_tree_evicts_within_one_rack():
    async def main(stage):
        racks(stage, aa1=1, bb1=2)
        for at, node in enumerate(("aa1-0", "bb1-0", "bb1-1")):
            on.pod(stage.world, f"low-{at}", cpu="2", priorityClassName="low", terminationGracePeriodSeconds=0)
            stage.world.bind(f"low-{at}", node)
        a_tree(stage, "tree", 2, together="rack")
        for group in "gh":
            a_group(stage, group, 2, parent="tree")
            crew(stage, group, f"{group}-0", f"{group}-1")
        names = ("g-0", "g-1", "h-0", "h-1")
        await stage.placed(*names)
        assert shares([stage.node_of(name) for name in names], "rack") == {"bb1"}
        assert stage.pod("low-0") is not None

    play(main)
