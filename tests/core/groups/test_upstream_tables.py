"""The rows of upstream's tables about pod groups, as of 1.37: whom a group evicts, where it may go, when its pods may start.

A row that upstream repeats with a gate on and off is one row here, tried both ways. Left out are four rows that kube-scheduler
itself cannot reach, because it refuses a group whose pods differ from it, and two whose answers change while victims return.

Source  kube-scheduler, podgrouppreemption_test.go, topology_placement_test.go, gangscheduling_test.go
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from moorage.api.meta import LabelSelector, ObjectMeta
from moorage.api.pod_groups import BasicSchedulingPolicy, DisruptionMode, PodGroup
from moorage.api.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from moorage.core.engine.facts import Phase
from moorage.core.preemption.victim_units import Unit
from moorage.core.queue import QueuePlace
from moorage.errors import AttemptError
from moorage.framework.events import Action, ClusterEvent, Resource
from moorage.framework.placements import GroupInfo, Placement
from moorage.framework.verdicts import Code
from moorage.plugins.later.gang_scheduling import GangSchedulingV137
from moorage.plugins.topology_placement_generator import TopologyPlacementGenerator
from moorage.state.group_trees import below
from moorage.state.pod_info import PodInfo
from tests.core.engine.driving import dying, node, pod
from tests.core.engine.test_group_preemption import started
from tests.core.engine.test_group_trees import composite, leaf
from tests.core.engine.test_groups_as_one import driven, ranked
from tests.core.engine.test_pod_groups import gang, member, messages, preempted, reasons

GATES = "GenericWorkload=true"
BY_TOPOLOGY = f"{GATES},TopologyAwareWorkloadScheduling=true"
TREES = f"{BY_TOPOLOGY},CompositePodGroup=true"
RANKS = {"low": 1, "mid": 5, "high": 10}
MODES = {"all": DisruptionMode(all=BasicSchedulingPolicy()), "single": DisruptionMode(single=BasicSchedulingPolicy()), "": None}

# -- whom a group evicts ----------------------------------------------------------------------------------------------------

NEVER = "not eligible due to preemptionPolicy=Never."
NO_VICTIMS = "No preemption victims found for incoming preemptor"
UNDER_WAY = "ongoing preemption on nominated nodes"

#: Placed pods: name, node, rank, then words: @group, t<seconds since it started>, 0 (it takes no room) or 500m, guarded (by a
#: budget that allows no disruption), leaving (preempted before, and terminating). Groups: rank and mode. The preemptor: its
#: rank, number of pods, minCount, and words: never (its policy), on=<the node of the last pod's nomination>. Then the victims,
#: or why there are none. All pods take a CPU, and the nodes are full. Where upstream's rows let the group choose among nodes,
#: all pods are on one: who goes is the question, and 1.37 keeps to the nodes of the first try.
EVICTED = {
    "a single pod goes before groups of one": (
        "p1 node1 low; p2 node1 low @pg1; p3 node1 low @pg2", "pg1 low single; pg2 low single", "high 1", "p1",
    ),
    "the later of two in a group, before a pod that ranks higher": (
        "p1 node1 low @pg1 t1; p2 node1 low @pg1 t0; p3 node1 mid", "pg1 low single", "high 1", "p1",
    ),
    "one of a group that may lose it": ("p1 node1 low @pg1 t1; p2 node1 low @pg1 t0", "pg1 low single", "high 1", "p1"),
    "three of five, by rank": (
        "p1 node1 low @pg1 t2; p2 node1 low @pg1 t1; p3 node1 low @pg2 t0; p4 node1 mid; p5 node1 high @pg3 t0",
        "pg1 low single; pg2 low single; pg3 high single", "high 3", "p1 p2 p3",
    ),
    "a budget guards one of an unknown group": ("p1 node1 low @pg1 guarded; p2 node1 low @pg1", "", "high 1", "p2"),
    "a single pod goes before unknown groups": ("p1 node1 low; p2 node1 low @pg1; p3 node1 low @pg2", "", "high 1", "p1"),
    "it never preempts; unknown groups": ("p1 node1 low; p2 node1 low @pg1; p3 node1 low @pg2", "", "high 2 never", NEVER),
    "a group that never preempts": (
        "p1 node1 low; p2 node1 low @pg1; p3 node1 low @pg2", "pg1 low single; pg2 low single", "high 2 never", NEVER,
    ),
    "a victim still terminates on a nominated node": ("v1 node1 low leaving", "", "high 2 on=node1", UNDER_WAY),
    "a victim terminates on another node": ("v1 node2 low leaving 0; v2 node1 low", "", "high 2 on=node1", "v2"),
    "a pod of a lower group terminates on a nominated node": (
        "v1 node1 high @pg leaving", "pg low all", "high 2 on=node1", UNDER_WAY,
    ),
    "a pod of a higher group terminates on a nominated node": (
        "v1 node1 low @pg leaving; v2 node1 low", "pg high all", "mid 2 on=node1", "v2",
    ),
    "the same for a lower group that may lose single pods": (
        "v1 node1 high @pg leaving", "pg low single", "high 2 on=node1", UNDER_WAY,
    ),
    "the same for a higher group of the default mode": (
        "v1 node1 low @pg leaving; v2 node1 low", "pg high", "mid 2 on=node1", "v2",
    ),
    "one lower pod": ("p1 node1 low", "", "high 1", "p1"),
    "the lowest of three": ("p1 node1 low; p2 node1 mid; p3 node1 high", "", "high 1", "p1"),
    "as few as possible": ("p1 node1 low; p2 node1 low 0; p3 node1 low 0; p4 node1 low 0", "", "high 1", "p1"),
    "not the guarded one": ("p1 node1 low guarded; p2 node1 low", "", "high 1", "p2"),
    "the lower of two that are guarded": ("p1 node1 low guarded; p2 node1 mid guarded", "", "high 1", "p1"),
    "a whole group on two nodes": ("p1 node1 low @pg1; p2 node2 low @pg1 0", "pg1 low all", "high 1", "p1 p2"),
    "a single pod rather than a whole group": (
        "p1 node1 low; g1 node1 low @pg1 500m; g2 node1 low @pg1 500m", "pg1 low all", "high 1", "p1",
    ),
    "a whole group on one node": ("g1 node1 low @pg1; g2 node1 low @pg1 0; p1 node1 mid 0", "pg1 low all", "high 1", "g1 g2"),
    "one guarded pod guards its group": (
        "g1 node1 low @pg1 guarded; g2 node1 low @pg1 0; p1 node1 low", "pg1 low all", "high 1", "p1",
    ),
    "a single pod rather than a group of its rank": (
        "p1 node1 low; g1 node1 low @pg1 500m; g2 node1 low @pg1 500m", "pg1 low all", "high 1", "p1",
    ),
    "no pod ranks lower": ("p1 node1 high", "", "mid 1", NO_VICTIMS),
    "no pod is there": ("", "", "mid 1", NO_VICTIMS),
    "the group ranks lower than its pods": ("p1 node1 high @pg1; p2 node2 high @pg1 0", "pg1 mid all", "high 1", "p1 p2"),
    "the group ranks higher than its pods": ("p1 node1 low @pg1; p2 node2 low @pg1 0", "pg1 mid all", "mid 1", NO_VICTIMS),
    "gang: as many as can be, not only minCount": ("p1 node1 low; p2 node1 mid; p3 node1 mid", "", "high 3 2", "p1 p2 p3"),
    "gang: the highest may stay": ("p1 node1 low; p2 node1 low; p3 node1 low; p4 node1 mid", "", "high 3 2", "p1 p2 p3"),
    "gang: not those of equal rank": ("p1 node1 low; p2 node1 low; p3 node1 high; p4 node1 high", "", "high 3 1", "p1 p2"),
    "gang: a whole lower group": (
        "v1 node1 mid @pg1; v2 node1 mid @pg1; v3 node1 low", "pg1 mid all", "high 3 1", "v1 v2 v3",
    ),
    "gang: a lower group, but none of equal rank": (
        "v1 node1 mid @pg1; v2 node1 mid @pg1; v3 node1 high @pg2; v4 node1 high @pg2", "pg1 mid all; pg2 high all",
        "high 3 1", "v1 v2",
    ),
    "basic: as many as can be": ("p1 node1 low; p2 node1 mid; p3 node1 mid", "", "high 3", "p1 p2 p3"),
    "basic: the highest may stay": ("p1 node1 low; p2 node1 low; p3 node1 low; p4 node1 mid", "", "high 3", "p1 p2 p3"),
    "basic: not those of equal rank": ("p1 node1 low; p2 node1 low; p3 node1 high; p4 node1 high", "", "high 3", "p1 p2"),
    "basic: a whole lower group": (
        "v1 node1 mid @pg1; v2 node1 mid @pg1; v3 node1 low", "pg1 mid all", "high 3", "v1 v2 v3",
    ),
    "basic: a lower group, but none of equal rank": (
        "v1 node1 mid @pg1; v2 node1 mid @pg1; v3 node1 high @pg2; v4 node1 high @pg2", "pg1 mid all; pg2 high all",
        "high 3", "v1 v2",
    ),
}  # fmt: skip


def placed(text):
    """The pods of a row, and nodes that they fill."""
    sizes = {"node1": 0}
    for line in filter(None, text.split("; ")):
        name, on, rank, *words = line.split()
        group = next((word[1:] for word in words if word.startswith("@")), None)
        cpu = next((word for word in words if word in ("0", "500m")), "1")
        sizes[on] = sizes.get(on, 0) + {"0": 0, "500m": 500, "1": 1000}[cpu]
        labels = {"app": "foo"} if "guarded" in words else {}
        given = {"on": on, "priority": RANKS[rank], "labels": labels}
        one = pod(name, cpu, **given) if group is None else member(name, cpu, group, **given)
        at = next((int(word[1:]) for word in words if word[0] == "t" and word[1:].isdigit()), None)
        one = one if at is None else started(one, at)
        yield dying(preempted(one)) if "leaving" in words else one
    for name, cpu in sizes.items():
        yield node(name, f"{cpu}m")


def groups_of(text):
    for line in filter(None, text.split("; ")):
        name, rank, *mode = line.split()
        yield ranked(name, None, RANKS[rank], MODES[mode[0] if mode else ""])


BUDGET = PodDisruptionBudget(
    metadata=ObjectMeta(name="b", namespace="default"),
    spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "foo"})),
    status=PodDisruptionBudgetStatus(disruptions_allowed=0),
)


@pytest.mark.parametrize("gates", [GATES, TREES], ids=["without trees", "with trees"])
@pytest.mark.parametrize(("there", "groups", "preemptor", "expected"), EVICTED.values(), ids=EVICTED)
def test_victims(there, groups, preemptor, expected, gates):
    rank, number, *words = preemptor.split()
    least = next((int(word) for word in words if word.isdigit()), None)
    nominated = next((word[3:] for word in words if word.startswith("on=")), "")
    spec = {"preemptionPolicy": "Never"} if "never" in words else {}
    pods = [member(f"new{at}", priority=RANKS[rank], **spec) for at in range(int(number))]
    pods[-1] = replace(pods[-1], status=replace(pods[-1].status, nominated_node_name=nominated))
    run = driven(gates)
    run.see(*sorted(placed(there), key=lambda one: not hasattr(one.status, "allocatable")), *groups_of(groups), BUDGET)
    run.see(ranked("g", least, RANKS[rank]), *pods)
    messages(run)
    work = run.work()
    evicted = sorted(effect.victim.name for one in work if one.phase is Phase.PREEMPT for effect in one.effects)
    assert " ".join(evicted) == (expected if expected[0] in "pvg" else "")
    (told,) = [one.effects[0].condition.message for one in work if one.phase is Phase.GROUP_STATUS]
    found = f"found a placement for podgroup, preempting {len(evicted)} victims"
    assert told.endswith(f"pod group preemption: {found if evicted else expected}")


def unit(rank, pods=1, grouped=True, at=0):
    each = [member(f"p{one}") if grouped else pod(f"p{one}") for one in range(pods)]
    return Unit(rank, [(0, PodInfo(started(one, at))) for one in each], earliest=True)


#: Of two units the first matters more.
MATTERS_MORE = {
    "a higher priority": (unit(20), unit(10)),
    "a group rather than a pod": (unit(10), unit(10, grouped=False)),
    "of pods, the older": (unit(10, grouped=False, at=5), unit(10, grouped=False, at=9)),
    "of groups, the larger": (unit(10, 2), unit(10, 1)),
    "of groups of a size, the older": (unit(10, 2, at=5), unit(10, 2, at=9)),
}


@pytest.mark.parametrize(("more", "less"), MATTERS_MORE.values(), ids=MATTERS_MORE)
def test_importance(more, less):
    assert more.importance < less.importance
    assert not less.importance < more.importance


# -- where a group may go ---------------------------------------------------------------------------------------------------

#: Nodes of the placement, with a label; other nodes; the label that matters; nodes of the group's placed pods, each with the
#: groups above the pod in a tree; the placements. None: the domain of the placed pods is unclear.
SPREAD = (
    "node0 topology2=d1; node1 topology2=d4; node2 topology1=d1; node3 topology1=d2; node4 topology1=d1; node5 topology1=d3"
)
PLACEMENTS = {
    "without a constraint": ("node1; node2 foo=bar", "node3", None, "", {"all": "node1 node2"}),
    "each domain": (SPREAD, "", "topology1", "", {"d1": "node2 node4", "d2": "node3", "d3": "node5"}),
    "no node has the label": (SPREAD, "", "topology3", "", {}),
    "placed pods are in one domain": (
        "node0 topology=d2; node1 topology=d1", "node2 topology=d1; node3 topology=d1", "topology",
        "node2 pg1 cpg1; node3 pg2 cpg2", {"d1": "node1"},
    ),
    "placed pods are in a domain outside": (
        "node0 topology=d2", "node2 topology=d1; node3 topology=d1", "topology", "node2 pg1 cpg1; node3 pg2 cpg2", {},
    ),
    "placed pods of two groups are in two domains": (
        "node0 topology=d2; node1 topology=d1", "node2 topology=d0; node3 topology=d1", "topology",
        "node2 pg1 cpg1; node3 pg2 cpg2", None,
    ),
    "placed pods of a group are in two domains": (
        "node0 topology=d2; node1 topology=d1", "node2 topology=d0; node3 topology=d1", "topology",
        "node2 pg1 cpg1; node3 pg1 cpg1", None,
    ),
    "the node of a placed pod is unknown": (
        "node0 topology=d2; node1 topology=d1", "node2 topology=d1; node3 topology=d1", "topology",
        "node2 pg1 cpg1; node4 pg1 cpg1", None,
    ),
    "the node of a placed pod has no such label": ("node1 topology=d2", "node2 foo=bar", "topology", "node2 pg1 cpg1", None),
}  # fmt: skip


def nodes_of(text):
    for line in filter(None, text.split("; ")):
        name, _, label = line.partition(" ")
        yield node(name, labels=dict([label.split("=")]) if label else {})


@pytest.mark.parametrize("tree", [False, True], ids=["a pod group", "a composite group"])
@pytest.mark.parametrize(("inside", "outside", "key", "there", "expected"), PLACEMENTS.values(), ids=PLACEMENTS)
def test_placements(inside, outside, key, there, expected, tree):
    run = driven(TREES if tree else BY_TOPOLOGY)
    group = composite("top", topology=key) if tree else leaf("top", None, topology=key)
    run.see(*nodes_of(inside), *nodes_of(outside), group)
    for at, line in enumerate(filter(None, there.split("; "))):
        on, of, above = line.split()
        if tree:
            run.see(composite(above, parent="top"), leaf(of, above))
        run.see(member(f"p{at}", group=of if tree else "top", on=on, priority=10))
    snapshot = run.engine.cluster.snapshot
    names = [line.split()[0] for line in inside.split("; ")]
    everywhere = Placement("all", snapshot.nodes.only(snapshot.nodes.named(names)))
    info = GroupInfo("default", "top", (), below(group, snapshot))
    generate = lambda: TopologyPlacementGenerator().generate_placements(info, everywhere, snapshot)  # noqa: E731
    if expected is None:
        with pytest.raises(AttemptError, match="cannot determine domain for already scheduled pods"):
            generate()
    else:
        assert {one.name: " ".join(sorted(one.nodes.names())) for one in generate()} == expected


# -- when enough of a group fits --------------------------------------------------------------------------------------------

YES, NO, WAIT = None, Code.UNSCHEDULABLE, Code.WAIT

#: minCount (None: a basic group), pods or groups to try, those placed before, whether each that is tried fits; the answers.
FEASIBLE = {
    "all fit": (2, 2, 0, "yy", [WAIT, YES]),
    "the first fails, too few are left": (3, 3, 0, "n", [NO]),
    "the second fails, too few are left": (2, 2, 0, "yn", [WAIT, NO]),
    "basic: none fits": (None, 1, 0, "n", [NO]),
    "basic: one fits": (None, 1, 0, "y", [YES]),
    "basic: one is placed": (None, 1, 1, "n", [YES]),
    "more than minCount fit": (2, 3, 0, "yyy", [WAIT, YES, YES]),
    "more than minCount, the first fails": (2, 3, 0, "nyy", [WAIT, WAIT, YES]),
    "more than minCount, two fail": (2, 3, 0, "nn", [WAIT, NO]),
    "one is placed, two fit": (3, 2, 1, "yy", [WAIT, YES]),
    "enough are placed": (2, 1, 2, "n", [YES]),
    "one is placed, the first fails": (3, 2, 1, "n", [NO]),
    "one is placed, too few in all": (4, 2, 1, "y", [NO]),
}


@pytest.mark.parametrize("tree", [False, True], ids=["a pod group", "a composite group"])
@pytest.mark.parametrize(("least", "number", "before", "tried", "expected"), FEASIBLE.values(), ids=FEASIBLE)
def test_placement_feasible(least, number, before, tried, expected, tree):
    group = composite("g", least) if tree else gang(least=least)
    info = GroupInfo("default", "g", (), below(group, driven(TREES).engine.cluster.snapshot))
    told = [
        GangSchedulingV137().placement_feasible(info, before + tried[: at + 1].count("y"), number - at - 1)
        for at in range(len(tried))
    ]
    assert [None if status is None else status.code for status in told] == expected


# -- when pods of a group may be queued -------------------------------------------------------------------------------------

NO_GROUP = 'waiting for pods\'s pod group "pg1" to appear in scheduling queue'
NO_GROUP_OF_A_TREE = "failed to build hierarchy snapshot: pod group object not found in state for podgroup/default/pg1"
TOO_FEW = "waiting for minCount pods from a gang to appear in scheduling queue"
NO_QUORUM = 'waiting for composite pod group "{}" tree to meet quorum'

GANGS = [gang("pg1", 3), gang("pg2", 4), gang("pg3", None)]
TREE = [
    composite("root", 2), composite("sub1", 2, "root"), composite("sub2", None, "root"), composite("sub3", 2, "root"),
    leaf("a1", "sub1"), leaf("a2", "sub1"), leaf("a3", "sub1"), leaf("b1", "sub2", None), leaf("b2", "sub2"),
    leaf("c1", "sub3"), leaf("c2", "sub3"),
]  # fmt: skip
BASIC_TREE = [composite("base", None), leaf("d1", "base", 2), leaf("d2", "base", 2)]

#: The pod's group; the groups of other pods; all groups; why it is held back without trees, and with them.
QUEUED = {
    "a pod of no group": (None, "", GANGS, None, None),
    "a pod of a basic group": ("pg3", "", GANGS, None, None),
    "the group is unknown": ("pg1", "pg1 pg1 pg2 pg2", [], NO_GROUP, NO_GROUP_OF_A_TREE),
    "pods are missing": ("pg1", "pg1 pg2 pg2", GANGS, TOO_FEW, TOO_FEW),
    "the gang is complete": ("pg1", "pg1 pg1 pg2 pg2", GANGS, None, None),
    "the first pod of a tree": ("a1", "", TREE, None, NO_QUORUM.format("root")),
    "one subtree is ready": ("c1", "a1 a2", TREE, None, NO_QUORUM.format("root")),
    "two subtrees are ready": ("b1", "a1 a2 c1", TREE, None, None),
    "one group of a basic tree is ready": ("d2", "d1 d1", BASIC_TREE, TOO_FEW, None),
}


@pytest.mark.parametrize("trees", [False, True], ids=["without trees", "with trees"])
@pytest.mark.parametrize(("of", "others", "groups", "alone", "in_tree"), QUEUED.values(), ids=QUEUED)
def test_pre_enqueue(of, others, groups, alone, in_tree, trees):
    run = driven(TREES if trees else GATES)
    shown = [group for group in groups if trees or isinstance(group, PodGroup)]
    run.see(*shown, *(member(f"o{at}", group=other, priority=10) for at, other in enumerate(others.split())))
    run.see(pod("p") if of is None else member("p", group=of, priority=10))
    why = in_tree if trees else alone
    place, told = reasons(run)["p"]
    assert (place is QueuePlace.GATED, told) == ((True, (why,)) if why else (False, ()))


# -- what wakes the pods of a group -----------------------------------------------------------------------------------------


def in_namespace(one, namespace):
    return replace(one, metadata=replace(one.metadata, namespace=namespace))


def wakes(run, event, of, old, new):
    """Whether GangScheduling of 1.37 retries a pod of the group ``of`` after an event."""
    plugin = GangSchedulingV137()
    plugin.attach(run.engine)
    waiting = PodInfo(pod("p") if of is None else member("p", group=of))
    return any(wake.when(waiting, old, new) for wake in plugin.wakes_on() if wake.event.covers(event))


OF_TREE = [leaf("pg1", "root"), leaf("pg2", "root"), composite("root")]
OF_TWO_TREES = [leaf("pg1", "root1"), leaf("pg2", "root2"), composite("root1"), composite("root2")]
BELOW = [leaf("pg", "sub"), composite("root"), composite("sub", parent="root")]

POD, GROUP, COMPOSITE = Resource.UNSCHEDULED_POD, Resource.POD_GROUP, Resource.COMPOSITE_POD_GROUP

#: The kind of what was added; the pod's group; what was added; all groups; whether it wakes the pod without trees, with them.
ADDED = {
    "a pod of the group": (POD, "pg1", member("n", group="pg1"), [gang("pg1")], True, True),
    "a placed pod of the group": (POD, "pg1", member("n", group="pg1", on="x"), [gang("pg1")], True, True),
    "a pod of another namespace": (
        POD, "pg1", in_namespace(member("n", group="pg1"), "foo"), [gang("pg1"), in_namespace(gang("pg1"), "foo")],
        False, False,
    ),
    "a pod of another group": (POD, "pg1", member("n", group="pg2"), [gang("pg1"), gang("pg2")], False, False),
    "a pod of the tree": (POD, "pg1", member("n", group="pg2"), OF_TREE, False, True),
    "a pod of another tree": (POD, "pg1", member("n", group="pg2"), OF_TWO_TREES, False, False),
    "the group": (GROUP, "pg1", gang("pg1", 1), [gang("pg1", 1)], True, True),
    "another group": (GROUP, "pg1", gang("pg2", 1), [gang("pg1"), gang("pg2", 1)], False, False),
    "a group of another namespace": (
        GROUP, "pg1", in_namespace(gang("pg1", 1), "foo"), [gang("pg1"), in_namespace(gang("pg1", 1), "foo")], False, False,
    ),
    "a group of the tree": (GROUP, "pg1", OF_TREE[1], OF_TREE, False, True),
    "a group of another tree": (GROUP, "pg1", OF_TWO_TREES[1], OF_TWO_TREES, False, False),
    "the root of the tree": (COMPOSITE, "pg1", OF_TREE[2], OF_TREE, False, True),
    "a composite group in between": (COMPOSITE, "pg", BELOW[2], BELOW, False, True),
    "the root of another tree": (COMPOSITE, "pg1", OF_TWO_TREES[3], OF_TWO_TREES, False, False),
}  # fmt: skip


@pytest.mark.parametrize("trees", [False, True], ids=["without trees", "with trees"])
@pytest.mark.parametrize(("kind", "of", "added", "groups", "alone", "in_tree"), ADDED.values(), ids=ADDED)
def test_what_is_added(kind, of, added, groups, alone, in_tree, trees):
    run = driven(TREES if trees else GATES)
    run.see(*(group for group in groups if trees or isinstance(group, PodGroup)))
    new = PodInfo(added) if kind is POD else added
    assert wakes(run, ClusterEvent(kind, Action.ADD), of, None, new) is (in_tree if trees else alone)


#: The pod's group; minCount before and after (None: a basic group); whether it wakes the pod.
UPDATED = {
    "minCount is lowered": ("g", 4, 3, True),
    "a basic group": ("g", None, None, False),
    "minCount is raised": ("g", 3, 4, False),
    "minCount stays": ("g", 3, 3, False),
    "of another group": ("other", 4, 3, False),
    "of a pod without a group": (None, 4, 3, False),
}


@pytest.mark.parametrize("trees", [False, True], ids=["without trees", "with trees"])
@pytest.mark.parametrize("namespace", ["default", "other"])
@pytest.mark.parametrize(("of", "before", "after", "expected"), UPDATED.values(), ids=UPDATED)
def test_what_is_updated(of, before, after, expected, namespace, trees):
    run = driven(TREES if trees else GATES)
    old, new = (in_namespace(gang("g", least), namespace) for least in (before, after))
    run.see(new, gang("other"))
    event = ClusterEvent(GROUP, Action.UPDATE)
    assert wakes(run, event, of, old, new) is (expected and namespace == "default")
