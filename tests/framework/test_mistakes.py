"""What authors get wrong, and the message of each mistake: where a plugin is loaded, where it is checked, and where it runs."""

from __future__ import annotations

import time

import numpy as np
import pytest

from moorage import Simulation
from moorage.core.cycle.cycle import Cycle
from moorage.errors import MoorageError
from moorage.framework.args import PluginArgs
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.mistakes import mistaken_wakes, mistakes_of
from moorage.framework.points import FilterNodePlugin, ReservePlugin, Reuse, Scope
from moorage.framework.post_filter import PostFilterResult
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import SKIP, Code, Hold, Narrow, Reject, Wait
from moorage.live.runtime.plugin_limit import TimeLimit
from moorage.plugins import BUILTIN
from moorage.plugins.shared.releases import PLUGINS_1_21, VARIANTS
from moorage.state.cluster import Snapshot
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.fake_handle import FakeHandle, FakeWaitingPod
from moorage.testing.plugin_checks import check_plugin

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins:
      multiPoint:
        enabled: [{name: Mine}]
"""


def made(bases=(), **body):
    return type("Mine", bases, {"name": "Mine", **body})


def nothing(self, *args): ...


class NeedsLimit(PluginArgs, frozen=True):
    limit: int


NODE_ADDED = ClusterEvent(Resource.NODE, Action.ADD)
never = {"filter_node": lambda self, pod, node: Hold.because("never")}


async def later(self, pod, node): ...


def yields(self, pod, node):
    yield Hold.because("no")


class Metrics:
    def __init__(self):
        raise RuntimeError("no metrics server")


class Remembers:
    """Keeps the first pod's answer for all pods."""

    name = "Mine"

    def __init__(self):
        self.first = None

    def pre_filter(self, pod, snapshot):
        self.first = self.first or pod.name
        return pod

    def filter_node(self, pod, node):
        return None if pod.name == self.first else Hold.because("not the first")


#: Mistake → the class, and a part of the message: of the notes where it is loaded, of check_plugin, of the pod that is tried,
#: or of the error that refuses it.
MISTAKES = {
    # Refused when it is loaded.
    "no name": (
        type("Mine", (), {"filter_node": nothing}),
        "refused",
        "has no usable name; give the class a line such as name",
    ),
    "no extension point": (made(), "refused", "implements no extension point"),
    "its only method is misspelt": (made(filtr_node=nothing), "refused", "for filtr_node write filter_node"),
    "the constructor raises": (
        made((Metrics,), filter_node=nothing),
        "refused",
        "cannot be built: RuntimeError: no metrics server",
    ),
    "Args without a constructor": (made(Args=NeedsLimit, **never), "refused", "plugin Mine needs arguments: limit"),
    "a Protocol without all its methods": (
        made((ReservePlugin,), reserve=nothing),
        "refused",
        "Can't instantiate abstract class Mine",
    ),
    "wakes_on raises": (
        made(wakes_on=lambda self: 1 / 0, **never),
        "refused",
        "plugin Mine failed in wakes_on: ZeroDivisionError",
    ),
    "wakes_on yields events": (made(wakes_on=lambda self: [NODE_ADDED], **never), "refused", "yield Wake(event, when)"),
    "wakes_on yields texts": (made(wakes_on=lambda self: ["Node/Add"], **never), "refused", "wakes_on yields 'Node/Add'"),
    "attach raises": (
        made(attach=lambda self, handle: handle.clock, **never),
        "refused",
        "plugin Mine failed in attach: AttributeError",
    ),
    "reuse is no Reuse": (made(reuse="always", **never), "refused", "declares reuse = 'always'"),
    # Noted when it is loaded, and refused by check_plugin.
    "wakes_on misspelt": (made(wake_on=nothing, **never), "noted", "has wake_on, which is never called; write wakes_on"),
    "unreserve misspelt": (
        made(reserve=nothing, un_reserve=nothing),
        "noted",
        "has un_reserve, which is never called; write unreserve",
    ),
    "a method in Go's spelling": (
        made(PreFilter=nothing, **never),
        "noted",
        "has PreFilter, which is never called; write pre_filter",
    ),
    "a name of Go's framework": (made(EventsToRegister=nothing, **never), "noted", "write wakes_on"),
    "NormalizeScore": (
        made(score_node=lambda *a: 1, NormalizeScore=nothing),
        "noted",
        "has NormalizeScore, which is never called; write normalize",
    ),
    "post_filters": (made(post_filters=nothing, **never), "noted", "write post_filter"),
    "a parameter too few": (
        made(filter_node=lambda self, pod: None),
        "noted",
        "has filter_node, which takes 1 argument; it is called with 2: state, node",
    ),
    "a parameter too many": (
        made(score_node=lambda self, state, node, more: 1),
        "noted",
        "has score_node, which takes 3 arguments; it is called with 2",
    ),
    "a parameter by name alone": (made(filter_node=lambda self, pod, node, *, log: None), "noted", "needs log by name"),
    "no self": (made(filter_node=lambda pod, node: None), "noted", "has filter_node, which takes 1 argument"),
    "an asynchronous method": (made(filter_node=later), "noted", "has filter_node as async, which is never awaited"),
    "yield in place of return": (made(filter_node=yields), "noted", "has filter_node with yield; return the answer"),
    "a property in place of a method": (
        made(filter_node=property(lambda self: None), score_node=lambda *a: 1),
        "noted",
        "has filter_node as a property",
    ),
    "normalize without a score": (
        made(normalize=nothing, **never),
        "noted",
        "has normalize, which is never called without score or score_node",
    ),
    "add_pod alone": (
        made(pre_filter=lambda *a: SKIP, add_pod=nothing),
        "noted",
        "has add_pod and no remove_pod; what-ifs need both",
    ),
    "a hint of one parameter": (
        made(wakes_on=lambda self: [Wake(NODE_ADDED, when=lambda pod: True)], **never),
        "noted",
        "the hint for NodeAdd takes 1 argument; it is called with 3: pod, old, new",
    ),
    "whom of three parameters": (
        made(wakes_on=lambda self: [Wake(NODE_ADDED, whom=lambda pod, old, new: True)], **never),
        "noted",
        "whom for NodeAdd takes 3 arguments; it is called with 2: old, new",
    ),
    "a hint that is no function": (
        made(wakes_on=lambda self: [Wake(NODE_ADDED, when="yes")], **never),
        "noted",
        "the hint for NodeAdd is 'yes' and no function",
    ),
    "a kind that does not exist": (
        made(wakes_on=lambda self: [Wake(ClusterEvent("Noed", Action.ADD))], **never),
        "noted",
        "Noed",
    ),
    # Found by check_plugin.
    "a hint that reads the old node of an addition": (
        made(wakes_on=lambda self: [Wake(NODE_ADDED, when=lambda pod, old, new: old.metadata.name == "a")], **never),
        "checked",
        "the hint for NodeAdd failed, called with PodInfo, None, Node: AttributeError",
    ),
    "attach fails": (made(attach=lambda self, handle: handle.clock, **never), "checked", "attach failed: AttributeError"),
    "reserve without unreserve": (made(reserve=nothing), "checked", "has reserve and no unreserve, which must undo it"),
    "it remembers pods": (Remembers, "checked", "differently after other pods; keep nothing of a pod before Reserve"),
    "it changes the pod": (
        made(filter_node=lambda self, pod, node: pod.labels.update(seen="1")),
        "checked",
        "filter changes the pod: metadata.labels",
    ),
    "a promise that does not hold": (
        made(
            reuse=Reuse(Scope.NODE, signature=lambda pod: {}, signature_reads=()),
            filter_node=lambda self, pod, node: Hold.because("odd") if len(pod.name) % 2 else None,
        ),
        "checked",
        "the same signature",
    ),
    "keys that cannot be compared": (
        made(sort_key=lambda self, queued: {"pod": queued.pod.name}),
        "checked",
        "keys cannot be compared",
    ),
    "post_filter answers None": (
        made(post_filter=nothing, **never),
        "checked",
        "returned None from post_filter; return PostFilterResult",
    ),
    "pre_enqueue answers False": (
        made(pre_enqueue=lambda self, pod: False),
        "checked",
        "returned False from pre_enqueue; return None or Hold",
    ),
    # Told by the pod that waits, and by check_plugin.
    "a bool for a verdict": (
        made(filter_node=lambda self, pod, node: True),
        "told",
        "returned True in filter_node; return None, or Hold.because",
    ),
    "a text for a verdict": (made(filter_node=lambda self, pod, node: "no"), "told", "returned 'no' in filter_node"),
    "a Hold from filter": (made(filter=lambda self, pod, nodes: Hold.because("no")), "told", "failed in filter: TypeError"),
    "a Hold of a text": (
        made(filter_node=lambda self, pod, node: Hold("no")),
        "told",
        "Hold('no') holds no tuple of reasons; write Hold.because",
    ),
    "a reason that is no text": (
        made(pre_filter=lambda self, pod, s: Hold.because(7)),
        "told",
        "Hold.because(7) gives a reason that is no text",
    ),
    "a mask of another length": (
        made(filter=lambda self, pod, nodes: [Reject(np.zeros(7, dtype=bool), "no")]),
        "told",
        "yield Reject(mask over the",
    ),
    "names in a list": (made(pre_filter=lambda self, pod, s: Narrow("n1", pod)), "told", "give a frozenset of them"),
    "a missing label": (
        made(filter_node=lambda self, pod, node: node.labels["x"]),
        "told",
        "failed in filter: KeyError: 'x' (test_mistakes.py, line",
    ),
    "a misspelt field": (made(filter_node=lambda self, pod, node: node.lables), "told", "did you mean labels?"),
    "a score above 100": (made(score_node=lambda *a: 500), "told", "scores must be in the range [0, 100] after normalizing"),
    "a negative score": (made(score_node=lambda *a: -5), "told", "scores must be in the range [0, 100] after normalizing"),
    "a score that is no number": (
        made(score_node=lambda *a: float("nan")),
        "told",
        "returned nan in score_node; return an int",
    ),
    "a fractional score": (made(score_node=lambda *a: 33.7), "told", "returned 33.7 in score_node; return an int"),
    "no score": (made(score_node=nothing), "told", "returned None in score_node; return an int"),
    "scores in a list": (
        made(score=lambda self, pod, nodes: [1] * len(nodes)),
        "told",
        "return an int64 array with one score for each",
    ),
    "scores of one node": (
        made(score=lambda self, pod, nodes: np.zeros(1, dtype=np.int64)),
        "told",
        "return an int64 array with one score for each",
    ),
    "normalize divides by zero": (
        made(score_node=lambda *a: 5, normalize=lambda self, state, scores: 1 // 0),
        "told",
        "failed in normalize: ZeroDivisionError",
    ),
    "a wait in a text": (made(permit=lambda *a: Wait("10")), "told", "Wait('10') holds no number of seconds; write Wait(10)"),
    "True from Permit": (made(permit=lambda *a: True), "told", "returned True"),
    "a text from PreBind": (made(pre_bind=lambda *a: ["bind"]), "told", "'bind'"),
    "it ends the program": (made(filter_node=lambda *a: exit(3)), "told", "SystemExit: 3"),
}


def simulation(cls, config=CONFIG):
    nodes = [a_node(f"n{at}", allocatable={"cpu": "2", "pods": 10}) for at in range(3)]
    pods = [a_pod(name, containers=[{"name": "c"}]).pod for name in ("p", "qq")]
    return Simulation.from_objects(*nodes, *pods, config=config, plugins=(cls,), keep_records=True)


def told_by(cls, how):
    """Return what a user reads of a mistake: the error, the notes, what check_plugin says, or the messages of pods."""
    if how == "checked":
        with pytest.raises(AssertionError) as found:
            check_plugin(cls())
        return str(found.value)
    if how == "refused":
        with pytest.raises(MoorageError) as refused:
            simulation(cls)
        return str(refused.value)
    sim = simulation(cls)
    sim.run(until=1)
    outcome = sim.outcome()
    return "\n".join(note.text for note in outcome.notes) if how == "noted" else "\n".join(pod.message for pod in outcome.pods)


#: A method that is asynchronous by mistake leaves a coroutine that nothing awaits, of which Python warns.
unawaited = pytest.mark.filterwarnings(
    "ignore:coroutine 'later':RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@unawaited
@pytest.mark.parametrize(("cls", "how", "message"), MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_has_its_message(cls, how, message):
    assert message in told_by(cls, how)


@unawaited
@pytest.mark.parametrize(
    "cls",
    [cls for cls, how, _ in MISTAKES.values() if how in {"noted", "told"}],
    ids=[m for m, (_, how, _) in MISTAKES.items() if how in {"noted", "told"}],
)
def test_check_plugin_finds_what_loading_notes_and_pods_tell(cls):
    with pytest.raises(AssertionError):
        check_plugin(cls())


@pytest.mark.parametrize(
    "cls", dict.fromkeys([*BUILTIN, *PLUGINS_1_21.values(), *VARIANTS.values()]), ids=lambda cls: cls.__name__
)
def test_shipped_plugins_have_no_mistake(cls):
    assert list(mistakes_of(cls)) == []


class Fine(FilterNodePlugin):
    """Has methods of its own whose names are near those of the contract."""

    name = "Fine"
    score_table = {"a": 1}

    def filter_node(self, pod, node, extra=None): ...
    def reserve(self, *args): ...
    def unreserve(self, state, pod, node): ...
    def score_of(self, node): ...
    def filter_nodes(self, nodes): ...
    def reserved(self): ...
    def allowed(self): ...
    def _wake_on(self): ...

    @staticmethod
    def permit(state, pod, node): ...

    @classmethod
    def bind(cls, state, pod, node): ...


def test_methods_of_its_own_are_no_mistakes():
    assert list(mistakes_of(Fine)) == []
    wakes = [Wake(NODE_ADDED, when=lambda *any_: True), Wake(NODE_ADDED, when=lambda pod, old, new, more=1: True, whom=max)]
    assert list(mistaken_wakes(wakes)) == []


# -- the configuration ----------------------------------------------------------------------------------------------------

WRITTEN_FOR_ONE_THAT_IS_OFF = """{
  plugins: {multiPoint: {disabled: [{name: InterPodAffinity}], enabled: [{name: Mine}]}},
  pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 1}}],
}"""
SETTINGS = {
    "arguments of a plugin that does not run": (
        "pluginConfig: [{name: Coscheduling, args: {permitWaitingTimeSeconds: 5}}]",
        "profiles[0].pluginConfig[0]: the profile does not enable Coscheduling, so its arguments have no effect; enable it",
    ),
    "arguments of a misspelt plugin": (
        "pluginConfig: [{name: NodeResourceFit, args: {ignoredResources: [a]}}]",
        "does not enable NodeResourceFit, so its arguments have no effect; did you mean NodeResourcesFit?",
    ),
    "a weight of zero": (
        "plugins: {score: {enabled: [{name: Mine, weight: 0}]}}",
        "profiles[0].plugins.score: the weight 0 of Mine counts as 1; to switch its scores off, list it in score.disabled",
    ),
    "a weight of zero at multiPoint": (
        "plugins: {multiPoint: {enabled: [{name: Mine, weight: 0}]}}", "profiles[0].plugins.multiPoint: the weight 0 of Mine",
    ),
    "nothing wrong": ("plugins: {multiPoint: {enabled: [{name: Mine, weight: 2}]}}", None),
    "what kube-scheduler writes for a plugin that is off": (WRITTEN_FOR_ONE_THAT_IS_OFF, None),
}  # fmt: skip


@pytest.mark.parametrize(("profile", "message"), SETTINGS.values(), ids=SETTINGS)
def test_settings_without_effect_are_noted(profile, message):
    profile = profile if profile.startswith("{") else "{" + profile + "}"
    config = f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{profile}]"
    sim = simulation(made(score_node=lambda *a: 1), config)
    notes = [note.text for note in sim.outcome().notes if note.kind == "Remark"]
    assert notes == [] if message is None else any(message in note for note in notes), notes


# -- time -----------------------------------------------------------------------------------------------------------------


def test_an_attempt_whose_plugin_sleeps_fails_at_the_limit():
    class Slow:
        name = "Slow"

        def filter(self, pod, nodes):
            if pod.name == "slow":
                time.sleep(30)
            yield Reject(nodes.false(), "no")

    limit = TimeLimit(0.05)
    profile = limit.limited(make_profile("default-scheduler", {"Slow": Slow()}, {"filter": ["Slow"]}, {}))
    snapshot = a_cluster([a_node("n1", allocatable={"pods": 3})]).snapshot
    begun = time.monotonic()
    error = Cycle().decide(profile, a_pod("slow"), snapshot).error
    assert "plugin Slow failed in filter: TimeoutError: still running after 0.05 s" in str(error)
    assert "(test_mistakes.py, line " in str(error)
    assert time.monotonic() - begun < 5
    assert Cycle().decide(profile, a_pod("quick"), snapshot).node == "n1"
    time.sleep(0.06)  # nothing is interrupted once the plugin has returned


# -- the handle for tests ---------------------------------------------------------------------------------------------------


class Gathers:
    """Allows two pods at once."""

    name = "Gathers"

    def attach(self, handle):
        self.handle = handle

    def permit(self, state, pod, node):
        for held in self.handle.waiting():
            held.allow(self.name)
        return None if self.handle.waiting() else Wait(5)

    def post_filter(self, pod, attempt):
        for held in self.handle.waiting():
            held.reject(self.name, "no room")
        self.handle.activate([pod])
        return PostFilterResult(Code.UNSCHEDULABLE)


def test_a_fake_handle_shows_what_a_plugin_asks_for():
    snapshot: Snapshot = a_cluster([a_node("n1")]).snapshot
    handle, plugin = FakeHandle(snapshot, now=3.0), Gathers()
    plugin.attach(handle)
    assert plugin.permit(None, a_pod("a"), "n1") == Wait(5)
    handle.held.append(FakeWaitingPod(a_pod("a"), "n1", ["Gathers", "Other"]))
    assert plugin.permit(None, a_pod("b"), "n1") is None
    assert handle.held[0].pending == ("Other",)
    plugin.post_filter(a_pod("c"), None)
    assert handle.held[0].rejected == [("Gathers", "no room")]
    assert [pod.name for pod in handle.activated] == ["c"]
    assert (handle.now, handle.snapshot) == (3.0, snapshot)
    check_plugin(Gathers(), handle=handle)
