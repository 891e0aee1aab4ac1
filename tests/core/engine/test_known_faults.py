"""Faults that kube-scheduler has had, or handles on purpose, re-created against the engine. Each test names its report.

Numbers after ``kubernetes`` are issues and pull requests of kubernetes/kubernetes.
"""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from msgspec.structs import replace

from moorage.api.quantity import QuantityError
from moorage.core.engine.facts import Gone, Phase, Seen
from moorage.core.queue.queued_pod import QueuePlace
from moorage.framework.effects import BindPod, Call, Evict
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.verdicts import Hold, Reject, Wait
from tests.core.engine.driving import Driven, bound, dying, node, pod


class Waits:
    """Permit holds every pod for a minute."""

    name = "Waits"

    def permit(self, state, pod, node):
        return Wait(60.0)


class Mounts:
    """PreBind has something to do for every pod."""

    name = "Mounts"

    def pre_bind(self, state, pod, node):
        return [Call(run=None, stand_in=lambda: None, what="mount")]


class Reserves:
    """Writes down what it reserves and takes back."""

    name = "Reserves"
    log: list

    def reserve(self, state, pod, node):
        self.log.append(f"+{pod.name}")

    def unreserve(self, state, pod, node):
        self.log.append(f"-{pod.name}")

    def post_bind(self, state, pod, node):
        self.log.append(f"={pod.name}")


def reserves():
    return type("Reserves", (Reserves,), {"log": []})


# -- kubernetes 141255, 91126, 85726: a pod recreated under its name arrives as one update ----------------------------------


def test_a_pod_recreated_under_its_name_replaces_the_bound_one():
    driven = Driven()
    driven.see(node("n1"), node("n2"), pod("p", on="n1", uid="old"), pod("p", on="n2", uid="new"))
    assert (driven.on("n1"), driven.on("n2")) == ([], ["p"])
    driven.gone(pod("p", on="n1", uid="old"))  # told late, or told twice
    assert driven.on("n2") == ["p"]


def test_a_pod_recreated_under_its_name_replaces_the_waiting_one():
    driven = Driven()
    driven.see(pod("p", uid="old"), pod("p", uid="new"))
    assert (driven.place("old"), driven.place("new")) == (None, QueuePlace.ACTIVE)


@pytest.mark.parametrize("plugin", [Waits, Mounts, reserves()], ids=["in Permit", "in PreBind", "in Bind"])
@pytest.mark.parametrize("error", [None, "409 Conflict"])
def test_a_pod_recreated_during_binding_starts_over(plugin, error):
    driven = Driven(plugin)
    driven.see(node("n", "1"), pod("p", uid="old"))
    assert driven.step() == ("p", "n")
    under_way = driven.work(Phase.PRE_BIND, Phase.BIND)
    driven.see(pod("p", uid="new"))
    assert driven.step() == ("p", "n")  # the room of the old one is free
    for work in under_way:
        driven.done(work, error)
    assert driven.place("old") is None
    assert driven.engine.cluster.assumed == {"new": "n"}


# -- kubernetes 42063, 46347, 47150, 50916: "cache is corrupted" -------------------------------------------------------------


@pytest.mark.slow
def test_facts_about_one_pod_are_safe_in_any_order():
    p = pod("p", uid="u")
    facts = [Seen(node("n")), Seen(p), Seen(bound(p, "n")), Seen(bound(p, "m")), Gone(bound(p, "n")), Gone(node("n"))]
    for order in itertools.islice(itertools.permutations(facts), 0, None, 5):
        driven = Driven()
        for fact in order:
            driven.engine.observe(fact, 0.0)
            driven.steps()
            for work in driven.work(Phase.BIND):
                driven.done(work, "409 Conflict")
        driven.gone(bound(p, "m"))
        driven.see(node("n"), node("m"))
        assert (driven.on("n"), driven.on("m"), len(driven.engine.queue)) == ([], [], 0)
        driven.check_settled()


def test_a_pod_confirmed_on_another_node_moves_there_and_wakes_pods():
    driven = Driven(recorder := reserves())
    driven.see(node("n", "1"), pod("p"), pod("next", priority=-1))
    assert driven.steps() == [("p", "n"), ("next", None)]
    work = driven.only_work(Phase.BIND)
    driven.see(node("m", "1", unschedulable=True), bound(pod("p"), "m"))
    assert (driven.on("n"), driven.on("m")) == ([], ["p"])
    assert driven.step(2.0) == ("next", "n")
    driven.done(work, "409 Conflict")
    assert recorder.log == ["+p", "+next", "-p"]
    assert driven.place("default/p") is None


def test_a_stale_pod_version_does_not_unbind_the_pod():
    driven = Driven()
    driven.see(node("n"), bound(pod("p"), "n"), pod("p", labels={"older": "yes"}))
    assert driven.on("n") == ["p"]
    assert driven.place("default/p") is None


def test_an_assumed_pod_never_expires():
    """kubernetes 106361: assumed pods that expired let others take room that was taken."""
    driven = Driven()
    driven.see(node("n", "1"), pod("p"), pod("next", priority=-1))
    assert driven.steps() == [("p", "n"), ("next", None)]
    driven.done(driven.only_work(Phase.BIND))
    for _ in range(10):
        assert all(tried == ("next", None) for tried in driven.steps(400.0))


# -- kubernetes 102790, 104521, 117497: changes while an attempt fails -------------------------------------------------------


def failing_in_pre_bind():
    driven = Driven(Mounts)
    driven.see(node("n"), pod("p", version="1"))
    driven.step()
    return driven, driven.only_work(Phase.PRE_BIND)


def test_a_pod_changed_in_a_failed_attempt_is_requeued_in_its_new_version():
    driven, work = failing_in_pre_bind()
    driven.see(pod("p", "2", version="2", labels={"new": "yes"}))
    driven.done(work, "timeout")
    assert driven.place("default/p") is QueuePlace.BACKOFF
    assert driven.engine.queue.get("default/p").pod.labels == {"new": "yes"}


@pytest.mark.parametrize("how", ["deleted", "deleting", "bound elsewhere", "finished"])
def test_a_pod_deleted_in_a_failed_attempt_is_not_requeued(how):
    driven, work = failing_in_pre_bind()
    p = pod("p", version="2")
    if how == "deleted":
        driven.gone(p)
    else:
        finished = replace(p, status=replace(p.status, phase="Failed"))
        driven.see({"deleting": dying(p), "bound elsewhere": bound(p, "m"), "finished": finished}[how])
    driven.done(work, "timeout")
    assert driven.place("default/p") is None
    assert driven.on("n") == []
    driven.check_settled()


# -- kubernetes 100140, 96579: the answer to a bind is lost ------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, "timeout"])
def test_an_applied_bind_stands_whatever_its_reply(error):
    driven = Driven(recorder := reserves())
    driven.see(node("n"), pod("p"))
    driven.step()
    work = driven.only_work(Phase.BIND)
    assert work.effects == (BindPod(work.pod, "n"),)
    driven.see(bound(pod("p"), "n"))
    driven.done(work, error)
    assert recorder.log == ["+p", "=p"]
    assert driven.steps(60.0) == []
    driven.check_settled()


# -- kubernetes 139162, 141694: a preemptor whose victims are gone before it hears that they were evicted --------------------


def preempting(*plugins):
    driven = Driven(*plugins)
    driven.see(node("n", "1"), pod("victim", on="n"), pod("vip", priority=9))
    assert driven.step() == ("vip", None)
    return driven, driven.only_work(Phase.PREEMPT)


@pytest.mark.parametrize("order", ["answer first", "victim first"])
def test_a_preemptor_is_placed_after_its_victims_in_any_event_order(order):
    driven, work = preempting()
    assert [effect.victim.name for effect in work.effects if isinstance(effect, Evict)] == ["victim"]
    if order == "answer first":
        driven.done(work)
        driven.gone(pod("victim", on="n"))
    else:
        driven.gone(pod("victim", on="n"))
        assert driven.steps(2.0) == []  # gated while its evictions are under way
        driven.done(work)
    assert driven.steps(2.0) == [("vip", "n")]


def test_a_preemptor_with_failed_evictions_is_retried_at_once():
    driven, work = preempting()
    driven.done(work, "500 Internal Server Error")
    assert driven.step() == ("vip", None)
    assert len(driven.work(Phase.PREEMPT)) == 1


# -- kubernetes 140082, 140054, 135502: a victim that is not bound yet -------------------------------------------------------


@pytest.mark.parametrize("plugin", [Waits, Mounts], ids=["in Permit", "in PreBind"])
def test_a_victim_before_its_bind_is_released_without_deletion(plugin):
    driven = Driven(Selective.for_pod("victim", plugin))
    driven.see(node("n", "1"), pod("victim"))
    driven.step()
    under_way = driven.work(Phase.PRE_BIND)
    driven.see(pod("vip", priority=9))
    assert driven.step() == ("vip", None)
    assert driven.work(Phase.PREEMPT) == []
    ((victim, by),) = [(eviction.victim, eviction.preemptor) for eviction in driven.outputs.preempted]
    assert (victim.name, victim.spec.node_name, by.name) == ("victim", "n", "vip")
    assert driven.step(2.0) == ("vip", "n")
    for work in under_way:
        assert not driven.engine.is_wanted(work.ticket)
        driven.done(work)
    assert driven.place("default/victim") is QueuePlace.BACKOFF
    assert driven.work(Phase.BIND)[0].pod.name == "vip"


def test_a_victim_that_is_being_bound_is_evicted():
    driven = Driven()
    driven.see(node("n", "1"), pod("victim"))
    driven.step()
    driven.see(pod("vip", priority=9))
    driven.step()
    assert [work.effects[0].victim.name for work in driven.work(Phase.PREEMPT)] == ["victim"]


class Selective:
    """Makes a plugin that acts on one pod only."""

    @staticmethod
    def for_pod(its_name, plugin):
        class One(plugin):
            name = "One"

        def only_there(acts):
            return lambda self, state, pod, node: acts(self, state, pod, node) if pod.name == its_name else None

        for method in ("permit", "pre_bind"):
            if hasattr(plugin, method):
                setattr(One, method, only_there(getattr(plugin, method)))
        return One


# -- kubernetes 120622, 126962, 122725: events kept for attempts that were never ended ---------------------------------------


def ended_by_deletion(driven, p):
    driven.gone(p)


def ended_by_another(driven, p):
    driven.see(bound(p, "n"))


def ended_by_time(driven, p):
    driven.steps(61.0)


@pytest.mark.parametrize("end", [ended_by_deletion, ended_by_another, ended_by_time])
def test_in_flight_events_are_kept_until_the_waiting_pod_finishes(end):
    driven = Driven(Waits)
    driven.see(node("n"), pod("p"))
    driven.step()
    for at in range(1000):
        driven.see(pod(f"other-{at}", on="n", cpu="0"))
    assert driven.engine.queue.logged_events == 1000
    end(driven, pod("p"))
    assert driven.engine.queue.logged_events == 0


def test_a_pod_deleted_before_its_attempt_is_skipped_without_state():
    driven = Driven()
    driven.see(node("n"), dying(pod("p")), pod("q"))
    assert driven.steps() == [("q", "n")]
    driven.see(*(pod(f"other-{at}", on="n", cpu="0") for at in range(100)))
    assert driven.engine.queue.logged_events == 0


# -- kubernetes 120334: plugins of an earlier attempt ------------------------------------------------------------------------


def test_an_error_after_a_rejection_goes_to_backoff():
    driven = Driven(Mounts)
    driven.see(node("n", "1"), pod("p", "2"))
    assert driven.step() == ("p", None)
    assert driven.place("default/p") is QueuePlace.UNSCHEDULABLE
    driven.see(node("n", "2"))
    assert driven.step(2.0) == ("p", "n")
    driven.done(driven.only_work(Phase.PRE_BIND), "timeout")
    assert driven.place("default/p") is QueuePlace.BACKOFF


# -- kubernetes 72124, 93505: another pod comes between a preemption and its nomination --------------------------------------


def test_a_nomination_reserves_resources_before_the_api_write():
    driven, work = preempting()
    driven.done(work)
    driven.see(pod("sneaky", priority=0))
    driven.gone(pod("victim", on="n"))
    assert driven.steps() == [("sneaky", None), ("vip", "n")]


# -- kubernetes 85447, 102339, 109245: nominations that outlive their pods ----------------------------------------------------


def test_a_nomination_ends_when_the_pod_is_assumed():
    driven, work = preempting(Selective.for_pod("vip", Waits))
    driven.done(work)
    driven.gone(pod("victim", on="n"))
    assert driven.steps(2.0) == [("vip", "n")]
    assert [waiting.pod.name for waiting in driven.engine.waiting()] == ["vip"]
    assert not driven.engine.queue.nominated


@pytest.mark.parametrize("end", ["deleted", "bound", "recreated"])
def test_a_nomination_ends_with_its_pod(end):
    driven, work = preempting()
    assert list(driven.engine.queue.nominated) == ["n"]
    if end == "deleted":
        driven.gone(pod("vip", priority=9))
    elif end == "bound":
        driven.see(bound(pod("vip", priority=9), "n"))
    else:
        driven.see(pod("vip", uid="another", priority=0))
    driven.done(work)
    assert not driven.engine.queue.nominated
    driven.see(pod("next", on="x"))


def test_a_bound_pod_is_not_nominated():
    driven = Driven()
    driven.see(node("n"), pod("p", on="n", nominated="n"))
    assert not driven.engine.queue.nominated


# -- kubernetes 134859: a pod that waited is bound by another scheduler -------------------------------------------------------


def test_the_assumed_resources_of_a_pod_bound_elsewhere_are_free():
    driven = Driven(Selective.for_pod("p", Waits))
    driven.see(node("n", "1"), node("m", "1", unschedulable=True), pod("p"), pod("next", priority=-1))
    assert driven.steps() == [("p", "n"), ("next", None)]
    driven.see(bound(pod("p"), "m"))
    assert driven.step(2.0) == ("next", "n")


def test_the_nominated_resources_of_a_pod_bound_elsewhere_are_free():
    driven, work = preempting()
    driven.done(work)
    driven.gone(pod("victim", on="n"))
    driven.see(pod("next"))
    driven.see(bound(pod("vip", priority=9), "m"))
    assert driven.steps() == [("next", "n")]


# -- kubernetes 134157: a deleted pod that still holds its node ---------------------------------------------------------------


@pytest.mark.parametrize("plugin", [Waits, Mounts, reserves()], ids=["in Permit", "in PreBind", "in Bind"])
@pytest.mark.parametrize("told", ["deletion begins", "deletion ends"])
def test_a_pod_deleted_during_binding_frees_its_node_at_once(plugin, told):
    driven = Driven(plugin)
    driven.see(node("n", "1"), pod("p"), pod("next", priority=-1))
    assert driven.steps()[0] == ("p", "n")
    under_way = driven.work(Phase.PRE_BIND, Phase.BIND)
    if told == "deletion begins":
        driven.see(dying(pod("p")))
    driven.gone(dying(pod("p")))
    assert driven.step(2.0) == ("next", "n")
    for work in under_way:
        assert not driven.engine.is_wanted(work.ticket)
        driven.done(work, "404 Not Found")
    assert driven.place("default/p") is None


def test_queued_work_of_a_deleted_pod_is_dropped():
    driven = Driven(recorder := reserves())
    driven.see(node("n"), pod("p"))
    driven.step()
    driven.gone(pod("p"))
    assert driven.work() == []
    assert recorder.log == ["+p", "-p"]


# -- behaviour on purpose --------------------------------------------------------------------------------------------------


def test_a_node_deleted_before_the_bind_keeps_its_pod_when_recreated():
    driven = Driven()
    driven.see(node("n", "1"), pod("p"))
    driven.step()
    driven.gone(node("n", "1"))
    driven.done(driven.only_work(Phase.BIND))
    driven.see(bound(pod("p"), "n"), node("n", "1"), pod("next"))
    assert driven.on("n") == ["p"]
    assert driven.steps() == [("next", None)]


def test_an_empty_cluster_waits_for_its_first_node():
    driven = Driven()
    driven.see(pod("p"))
    assert driven.steps() == [("p", None)]
    assert driven.steps(20.0) == [("p", None)]  # no plugin rejected it, so it waits for no event
    driven.see(node("n"))
    assert driven.steps(20.0) == [("p", "n")]


def test_a_repeated_version_changes_nothing():
    """kubernetes 96071: a pod was scheduled twice."""
    driven = Driven()
    driven.see(node("n", "1"), pod("p", "2", version="7"))
    driven.step()
    driven.see(pod("p", "2", version="7"), node("n", "1"))
    assert driven.place("default/p") is QueuePlace.UNSCHEDULABLE


def test_the_shortest_permit_wait_decides_and_is_named():
    class Short(Waits):
        name = "Short"

        def permit(self, state, pod, node):
            return Wait(5.0)

    driven = Driven(Waits, Short)
    driven.see(node("n"), pod("p"))
    driven.step()
    assert driven.engine.next_deadline() == 5.0
    driven.steps(5.0)
    (revoked,) = driven.outputs.take("revoked")
    assert revoked.refused_after.plugin == "Short"
    assert "after waiting 5s at plugin Short" in revoked.message
    assert driven.place("default/p") is QueuePlace.UNSCHEDULABLE


@pytest.mark.parametrize("answer", ["allow one", "allow all", "reject"])
def test_a_waiting_pod_needs_the_approval_of_every_permit_plugin(answer):
    class Also(Waits):
        name = "Also"

    driven = Driven(Waits, Also)
    driven.see(node("n"), pod("p"))
    driven.step()
    (waiting,) = driven.engine.waiting()
    assert waiting.pending == ("Waits", "Also")
    if answer == "reject":
        waiting.reject("Also", "no")
        assert list(driven.engine.waiting()) == []
    else:
        waiting.allow("Waits")
        if answer == "allow all":
            waiting.allow("Also")
    assert (driven.engine.next_deadline() == 0.0) == (answer != "allow one")  # the driver is to step at once
    driven.step()
    assert bool(driven.work(Phase.BIND)) == (answer == "allow all")
    assert len(driven.engine.cluster.assumed) == (answer != "reject")


class Hinted:
    """Refuses every node until told otherwise, and breaks when asked whether an event helps."""

    name = "Hinted"
    no = True

    def filter(self, pod, nodes):
        if Hinted.no:
            yield Reject(~nodes.false(), "not yet")

    def wakes_on(self):
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD), lambda pod, old, new: 1 / 0)


def test_a_raising_hint_wakes_the_pod():
    driven = Driven(Hinted)
    Hinted.no = True
    driven.see(node("n"), pod("p"))
    assert driven.step() == ("p", None)
    Hinted.no = False
    driven.see(node("m", unschedulable=True))
    assert driven.step(2.0) == ("p", "n")
    assert "ZeroDivisionError" in str(driven.faults[0])


BAD_ANSWERS = {
    "reserve": True,
    "permit": "later",
    "pre_bind": ["write"],
    "bind": [None],
}


@pytest.mark.parametrize("method", BAD_ANSWERS)
def test_an_invalid_plugin_result_fails_the_attempt_and_names_the_plugin(method):
    body = {"name": "Odd", method: lambda self, *args: BAD_ANSWERS[method], "unreserve": lambda self, *args: None}
    driven = Driven(type("Odd", (), body))
    if method == "bind":
        profile = driven.engine.profiles["default-scheduler"]
        alone = {**profile.steps, "bind": tuple(step for step in profile.at("bind") if step.name == "Odd")}
        driven.engine.state.profiles = {profile.scheduler_name: dataclasses.replace(profile, steps=alone)}
    driven.see(node("n"), pod("p"))
    driven.step()
    assert driven.place("default/p") is QueuePlace.BACKOFF
    revoked = driven.outputs.take("revoked")
    assert all("plugin Odd returned" in decision.message for decision in revoked)
    assert not driven.engine.cluster.assumed


@pytest.mark.parametrize("answer", ["no", {}, [], 3.7, True])
def test_an_invalid_pre_enqueue_result_gates_the_pod_and_is_reported(answer):
    class Odd:
        name = "Odd"

        def pre_enqueue(self, pod):
            return answer

    driven = Driven(Odd)
    driven.see(node("n"), pod("p"))
    assert driven.step() is None
    (line,) = driven.engine.queue.pending()
    assert (line.place, line.plugins) == (QueuePlace.GATED, ("Odd",))
    assert "in preEnqueue; return None or Hold" in line.reasons[0]
    assert "plugin Odd returned" in str(driven.faults[0])


@pytest.mark.parametrize("seconds", [float("nan"), -1.0, float("inf")])
def test_an_invalid_permit_timeout_ends_the_wait(seconds):
    class Odd:
        name = "Odd"

        def permit(self, state, pod, node):
            return Wait(seconds)

    driven = Driven(Odd)
    driven.see(node("n"), pod("p"))
    driven.step()
    driven.step(901.0)
    assert driven.work(Phase.BIND) == []


def test_errors_after_the_decision_are_recorded_and_stop_nothing():
    class Breaks:
        name = "Breaks"

        def reserve(self, state, pod, node):
            return Hold.because("no") if pod.name == "refused" else None

        def unreserve(self, state, pod, node):
            raise KeyError("lost")

        def post_bind(self, state, pod, node):
            raise RuntimeError("cannot notify")

    driven = Driven(Breaks)
    driven.see(node("n"), pod("p", priority=1), pod("refused"))
    assert driven.steps() == [("p", "n"), ("refused", None)]
    driven.done(driven.only_work(Phase.BIND))
    assert [str(fault).partition(" (test_known_faults.py, line ")[0] for fault in driven.faults] == [
        "plugin Breaks failed in unreserve: KeyError: 'lost'",
        "plugin Breaks failed in postBind: RuntimeError: cannot notify",
    ]


def test_a_plugin_without_unreserve_does_not_block_others():
    undone = []

    class First:
        name = "First"

        def reserve(self, state, pod, node):
            return None

        def unreserve(self, state, pod, node):
            undone.append(pod.name)

    class Reserves:
        name = "Reserves"

        def reserve(self, state, pod, node):
            if pod.name == "refused":
                raise RuntimeError("no")

        def permit(self, state, pod, node):
            return Wait(2.0) if pod.name == "waits" else None

        def pre_bind(self, state, pod, node):
            if pod.name == "late":
                raise RuntimeError("not now")

    driven = Driven(First, Reserves)
    driven.see(node("n"), *(pod(name) for name in ("refused", "waits", "late")))
    assert driven.steps() == [("refused", None), ("waits", "n"), ("late", "n")]
    driven.step(3.0)
    assert undone[:3] == ["refused", "late", "waits"]
    assert driven.faults == []


def test_an_invalid_placed_pod_leaves_no_state():
    driven = Driven()
    driven.see(node("n"))
    with pytest.raises(QuantityError):
        driven.see(pod("bad", "1x1", on="n"))
    driven.gone(pod("bad", "1x1", on="n"))
    driven.see(pod("good"))
    assert driven.steps() == [("good", "n")]
    assert driven.on("n") == ["good"]


POISON = {
    "pod affinity": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "z", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Bogus"}]}}
                ]
            }
        }
    },
    "spreading": {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "z",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Bogus"}]},
            }
        ]
    },
    "requests": {"cpu": "1x1"},
}


@pytest.mark.parametrize("spec", POISON.values(), ids=POISON)
def test_an_invalid_pod_waits_without_blocking_others(spec):
    driven = Driven()
    driven.see(node("n"), pod("bad", **spec), pod("good"))
    assert driven.steps() == [("bad", None), ("good", "n")]


@pytest.mark.parametrize("when", ["before", "during", "after"])
@pytest.mark.parametrize("error", [None, "connection lost"])
def test_a_pod_whose_confirmed_bind_is_lost_is_bound_again(when, error):
    driven = Driven()
    driven.see(node(), waiting := pod("p", version="5"))
    assert driven.step() == ("p", "n")
    work = driven.only_work(Phase.BIND)
    if when == "after":
        driven.done(work, error)
    driven.see(bound(pod("p", version="6"), "n"))
    if when == "during":
        driven.gone(bound(pod("p", version="6"), "n"))
        driven.done(work, error)
        driven.see(waiting)
    else:
        driven.gone(bound(pod("p", version="6"), "n"))
        driven.see(waiting)
        driven.done(work, error)
    assert driven.steps(60.0) == [("p", "n")]
    driven.done(driven.only_work(Phase.BIND))
    assert driven.steps(600.0) == []


@pytest.mark.parametrize("answered", [True, False])
def test_a_pod_without_a_node_in_a_newer_version_is_bound_again(answered):
    driven = Driven()
    driven.see(node(), pod("p", version="5"))
    assert driven.step() == ("p", "n")
    work = driven.only_work(Phase.BIND)
    if answered:
        driven.done(work)
    driven.see(bound(pod("p", version="6"), "n"))
    driven.see(pod("p", version="5"))  # late, and nothing new
    assert driven.steps(60.0) == []
    driven.see(pod("p", version="1006"))
    if not answered:
        driven.done(work, "connection lost")
    assert driven.steps(60.0) == [("p", "n")]
    driven.done(driven.only_work(Phase.BIND))
    assert driven.steps(600.0) == []


def test_deleting_an_assumed_pod_wakes_pods_that_wait_for_its_resources():
    """Its bind was answered, a list after a gap shows only that it is gone."""
    driven = Driven()
    first, second = pod("first", "2"), pod("second", "2")
    driven.see(node(cpu="2"), first)
    assert driven.step() == ("first", "n")
    driven.done(driven.only_work(Phase.BIND))
    driven.see(second)
    assert driven.step() == ("second", None)
    assert driven.place(second.uid) is QueuePlace.UNSCHEDULABLE
    driven.gone(first)
    assert driven.place(second.uid) is not QueuePlace.UNSCHEDULABLE
    assert driven.step(20.0) == ("second", "n")
