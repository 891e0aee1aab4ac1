"""How a profile is run: order, skipping, narrowing, reasons, score bounds, and plugins that break their contract."""

from __future__ import annotations

import numpy as np
import pytest

from moorage.errors import PluginError
from moorage.framework.plugin_runner import run_filter, run_pre_filter, run_score
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import SKIP, Code, Hold, Narrow, Reject, Status, Verdicts, fit_error
from moorage.state.view import NodeView
from moorage.testing.builders import a_cluster, a_node, a_pod


class Refuses:
    """Refuses the named nodes with a reason, over the table."""

    def __init__(self, name, nodes, *reasons, unresolvable=False):
        self.name, self.nodes, self.reasons, self.unresolvable = name, nodes, reasons, unresolvable

    def filter(self, state, nodes):
        for reason in self.reasons:
            yield Reject(nodes.named(self.nodes), reason, self.unresolvable)


class RefusesOne(Refuses):
    """The same, one node at a time; remembers whom it was asked about."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.asked = []

    filter = None

    def filter_node(self, state, node):
        self.asked.append(node.name)
        return Hold(self.reasons, self.unresolvable) if node.name in self.nodes else None


class PreFilters:
    def __init__(self, name, answer):
        self.name, self.answer, self.calls = name, answer, 0

    def pre_filter(self, pod, snapshot):
        self.calls += 1
        return self.answer


class Scores:
    def __init__(self, name, *scores, normalized=None):
        self.name, self.scores = name, scores
        if normalized is not None:
            self.normalize = lambda state, raw: np.array(normalized)

    def score(self, state, nodes):
        return np.array(self.scores)


def profile(*plugins, weights=None):
    points = {}
    for plugin in plugins:
        for point, method in {
            "preFilter": "pre_filter", "filter": "filter", "preScore": "pre_score", "score": "score",
        }.items():  # fmt: skip
            if getattr(plugin, method, None) or (point == "filter" and hasattr(plugin, "filter_node")):
                points.setdefault(point, []).append(plugin.name)
    return make_profile("default-scheduler", {p.name: p for p in plugins}, points, weights or {})


def verdicts_of(*plugins, nodes=("a", "b", "c")):
    snapshot = a_cluster([a_node(n) for n in nodes]).snapshot
    pod = a_pod()
    ran = profile(*plugins)
    verdicts = Verdicts(len(nodes))
    run_filter(ran, run_pre_filter(ran, pod, snapshot), pod, snapshot.nodes, verdicts)
    return {snapshot.table.nodes[row].name: status for row, status in verdicts.refused()}


@pytest.mark.parametrize("kind", [Refuses, RefusesOne])
def test_the_first_plugin_to_reject_a_node_gives_its_status(kind):
    got = verdicts_of(kind("One", ["a"], "no a"), kind("Two", ["a", "b"], "no ab", unresolvable=True))
    assert got == {
        "a": Status(Code.UNSCHEDULABLE, "One", ("no a",)),
        "b": Status(Code.UNRESOLVABLE, "Two", ("no ab",)),
    }


@pytest.mark.parametrize("kind", [Refuses, RefusesOne])
def test_all_reasons_of_one_plugin_are_kept_in_order(kind):
    assert verdicts_of(kind("Two", ["b"], "zeta", "alpha"))["b"].reasons == ("zeta", "alpha")


def test_rows_that_share_some_reasons_only_keep_their_own():
    class Fit:
        name = "Fit"

        def filter(self, state, nodes):
            yield Reject(nodes.named(["a", "b"]), "cpu", nodes.named(["b"]))
            yield Reject(nodes.named(["b", "c"]), "memory")

    assert verdicts_of(Fit()) == {
        "a": Status(Code.UNSCHEDULABLE, "Fit", ("cpu",)),
        "b": Status(Code.UNRESOLVABLE, "Fit", ("cpu", "memory")),
        "c": Status(Code.UNSCHEDULABLE, "Fit", ("memory",)),
    }


@pytest.mark.parametrize("count", [2, 61, 62, 63, 70])
def test_however_many_reasons_there_are_each_row_keeps_its_own(count):
    class Choosy:
        name = "Choosy"

        def filter(self, state, nodes):
            for number in range(count):
                yield Reject(nodes.named(["a"] if number % 2 else ["a", "b"]), f"reason {number}", nodes.named(["b"]))

    even = tuple(f"reason {number}" for number in range(0, count, 2))
    assert verdicts_of(Choosy()) == {
        "a": Status(Code.UNSCHEDULABLE, "Choosy", tuple(f"reason {number}" for number in range(count))),
        "b": Status(Code.UNRESOLVABLE, "Choosy", even),
    }


def test_a_per_node_plugin_runs_only_on_the_remaining_nodes():
    one = RefusesOne("One", ["b"], "no")
    verdicts_of(Refuses("First", ["a"], "no a"), one)
    assert one.asked == ["b", "c"]


def test_a_view_of_few_rows_is_filtered_like_the_whole():
    snapshot = a_cluster([a_node(n) for n in "abc"]).snapshot
    ran = profile(Refuses("One", ["a", "c"], "no"))
    verdicts = Verdicts(3)
    run_filter(ran, run_pre_filter(ran, a_pod(), snapshot), a_pod(), NodeView(snapshot, np.array([2, 1])), verdicts)
    assert [row for row, _ in verdicts.refused()] == [2]


def test_skip_omits_the_filter_and_a_hold_stops_the_pod():
    class Both(PreFilters):
        def filter(self, state, nodes):
            raise AssertionError("skipped plugins are not asked")

    assert verdicts_of(Both("Skips", SKIP)) == {}
    later = PreFilters("Later", None)
    snapshot = a_cluster([a_node("a")]).snapshot
    found = run_pre_filter(profile(PreFilters("No", Hold.because("never", unresolvable=True)), later), a_pod(), snapshot)
    assert found.refused == Status(Code.UNRESOLVABLE, "No", ("never",))
    assert later.calls == 0


def test_a_resolvable_hold_still_runs_the_other_plugins():
    later = PreFilters("Later", "state")
    snapshot = a_cluster([a_node("a")]).snapshot
    found = run_pre_filter(profile(PreFilters("No", Hold.because("not now")), later), a_pod(), snapshot)
    assert found.refused is not None
    assert found.states == {"Later": "state"}


NARROWED = {  # what two plugins narrow to; the nodes left, or the text when none is
    "one narrows": ((frozenset("ab"), None), frozenset("ab"), None),
    "both narrow": ((frozenset("ab"), frozenset("bc")), frozenset("b"), None),
    "nothing in common": (
        (frozenset("a"), frozenset("b")), frozenset(), "node(s) didn't satisfy plugin(s) [P0 P1] simultaneously",
    ),
    "one narrows to nothing": ((frozenset(), None), frozenset(), "node(s) didn't satisfy plugin P0"),
}  # fmt: skip


@pytest.mark.parametrize(("asked", "left", "text"), NARROWED.values(), ids=NARROWED)
def test_narrowing(asked, left, text):
    plugins = [PreFilters(f"P{at}", Narrow(nodes, "s") if nodes is not None else "s") for at, nodes in enumerate(asked)]
    found = run_pre_filter(profile(*plugins), a_pod(), a_cluster([a_node(n) for n in "abc"]).snapshot)
    assert found.nodes == left
    assert (found.refused.message if found.refused else None) == text


@pytest.mark.parametrize("nodes", [None, 5, "n1", ["n1"], frozenset([1]), frozenset([None])], ids=repr)
def test_narrowing_to_invalid_names_names_the_plugin(nodes):
    class Narrows:
        name = "Narrows"

        def pre_filter(self, pod, snapshot):
            return Narrow(nodes, "s")

    snapshot = a_cluster([a_node("n1")]).snapshot
    with pytest.raises(PluginError, match=r"plugin Narrows failed in preFilter: TypeError: Narrow\(.*; give a frozenset"):
        run_pre_filter(profile(Narrows()), a_pod(), snapshot)


def scores_of(*plugins, weights=None, nodes="ab"):
    snapshot = a_cluster([a_node(n) for n in nodes]).snapshot
    ran = profile(*plugins, weights=weights)
    return run_score(ran, run_pre_filter(ran, a_pod(), snapshot), a_pod(), snapshot.nodes)


def test_scores_are_normalised_weighted_and_summed():
    got = scores_of(Scores("A", 1, 2), Scores("B", 7, 900, normalized=[0, 100]), weights={"A": 3, "B": 2})
    assert got.raw["B"].tolist() == [7, 900]
    assert got.final["A"].tolist() == [3, 6]
    assert got.total.tolist() == [3, 206]
    assert got.best().tolist() == [1]


BROKEN = {
    "above the range": (Scores("Mine", 0, 140), "plugin Mine scored node b 140; scores must be in the range [0, 100]"),
    "below the range": (Scores("Mine", -1, 0), "plugin Mine scored node a -1;"),
    "too few": (Scores("Mine", 1), "return an int64 array with one score for each of 2 rows"),
    "not whole numbers": (Scores("Mine", 0.5, 1.0), "return an int64 array"),
}


@pytest.mark.parametrize(("plugin", "says"), BROKEN.values(), ids=BROKEN)
def test_scores_outside_the_contract_name_the_plugin(plugin, says):
    with pytest.raises(PluginError) as caught:
        scores_of(plugin)
    assert says in str(caught.value)


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError(), MemoryError(), ValueError("bad")])
def test_any_exception_of_a_filter_names_the_plugin(error):
    class Breaks:
        name = "Breaks"

        def filter(self, state, nodes):
            raise error

    with pytest.raises(PluginError, match=f"plugin Breaks failed in filter: {type(error).__name__}"):
        verdicts_of(Breaks())


def test_a_mask_of_the_wrong_length_is_rejected():
    class Short:
        name = "Short"

        def filter(self, state, nodes):
            yield Reject(np.array([True]), "no")

    with pytest.raises(PluginError, match="yield Reject\\(mask over the 3 rows"):
        verdicts_of(Short())


def test_timers_measure_every_call():
    heard = []
    ticks = iter(range(100))
    snapshot = a_cluster([a_node("a")]).snapshot
    timed = profile(PreFilters("P", "s"), Refuses("F", ["a"], "no"), Scores("S", 1)).timed(
        lambda: float(next(ticks)), lambda point, plugin, took: heard.append((point, plugin, took))
    )
    found = run_pre_filter(timed, a_pod(), snapshot)
    run_filter(timed, found, a_pod(), snapshot.nodes, Verdicts(1))
    run_score(timed, found, a_pod(), snapshot.nodes)
    assert heard == [("preFilter", "P", 1.0), ("filter", "F", 1.0), ("score", "S", 1.0)]


MESSAGES = {
    "reasons are counted and sorted as text": (
        {0: ("b",), 1: ("b",), 2: ("a", "b")}, "", "0/3 nodes are available: 1 a, 3 b."
    ),
    "what PostFilter said follows": ({0: ("x",)}, "preemption: no", "0/3 nodes are available: 1 x. preemption: no"),
    "nothing to say": ({}, "", "0/3 nodes are available:"),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "post_filter", "text"), MESSAGES.values(), ids=MESSAGES)
def test_the_text_of_a_failed_attempt(rows, post_filter, text):
    verdicts = Verdicts(3)
    for row, reasons in rows.items():
        verdicts.refuse(row, Status(Code.UNSCHEDULABLE, "P", reasons))
    assert fit_error(verdicts, post_filter) == text


class Answers:
    """Gives one answer whatever it is asked, about one node at a time."""

    def __init__(self, method, answer):
        self.name = "Answers"
        setattr(self, method, lambda pod, node: answer)


NO_ANSWERS = {
    "true for no": ("filter_node", True, "returned True in filter_node; return None, or Hold.because(reason)"),
    "a bare reason": ("filter_node", "too small", "returned 'too small' in filter_node; return None, or Hold.because(reason)"),
    "half a point": ("score_node", 0.5, "returned 0.5 in score_node; return an int"),
    "no score": ("score_node", None, "returned None in score_node; return an int"),
}


@pytest.mark.parametrize(("method", "answer", "told"), NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_an_invalid_node_result_is_reported(method, answer, told):
    plugin, snapshot, pod = Answers(method, answer), a_cluster([a_node("n")]).snapshot, a_pod("p")
    point = method.removesuffix("_node")
    profile = make_profile("s", {plugin.name: plugin}, {point: [plugin.name]}, {})
    found = run_pre_filter(profile, pod, snapshot)
    ways = {
        "filter": lambda: run_filter(profile, found, pod, snapshot.nodes, Verdicts(1)),
        "score": lambda: run_score(profile, found, pod, snapshot.nodes),
    }
    with pytest.raises(PluginError) as caught:
        ways[point]()
    assert str(caught.value) == f"plugin Answers {told}"


@pytest.mark.parametrize("score", [7, True, np.int64(7), np.int32(7)])
def test_any_whole_number_is_a_score_of_a_node(score):
    plugin, snapshot, pod = Answers("score_node", score), a_cluster([a_node("n")]).snapshot, a_pod("p")
    profile = make_profile("s", {plugin.name: plugin}, {"score": [plugin.name]}, {})
    assert run_score(profile, run_pre_filter(profile, pod, snapshot), pod, snapshot.nodes).raw == {"Answers": [int(score)]}
