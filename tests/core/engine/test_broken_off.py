"""An attempt that ends with an unexpected error is one failed attempt: the pod is retried, and others go on."""

from __future__ import annotations

import pytest

from moorage.core.queue import QueuePlace
from moorage.framework.points import PostFilterResult
from moorage.framework.verdicts import Code
from tests.core.engine.driving import HEAD, Driven, Phase, node, pod

ONLY_MINE = HEAD + (
    "profiles:\n- plugins:\n    multiPoint:\n      enabled: [{name: Odd}]\n"
    "    postFilter:\n      disabled: [{name: DefaultPreemption}]\n"
)

ANSWERS = {
    "None": None,
    "no result at all": "nothing helps",
    "victims that are no pods": PostFilterResult(Code.SUCCESS, victims=("p",)),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_invalid_post_filter_result_fails_one_attempt(answer):
    class Odd:
        name = "Odd"

        def post_filter(self, pod, attempt):
            return answer

    driven = Driven(Odd, config=ONLY_MINE)
    driven.see(node(), pod("large", "9", priority=5), pod("small"))
    decision = driven.attempt()
    assert decision.pod.name == "large"
    assert decision.code is Code.ERROR or answer is not None
    assert driven.steps() == [("small", "n")]
    assert driven.place("default/large") in {QueuePlace.BACKOFF, QueuePlace.UNSCHEDULABLE}
    driven.gone(node())
    driven.see(node(cpu="20"))
    assert ("large", "n") in driven.steps(30)


def test_a_failure_after_node_selection_leaves_no_state(monkeypatch):
    driven = Driven()
    driven.see(node(cpu="1"), pod("first"))
    faulty = [True]
    outbox = driven.engine.state.outbox
    put = outbox.put

    def fail_once(*given):
        if faulty:
            faulty.pop()
            raise KeyError("an unexpected key")
        return put(*given)

    monkeypatch.setattr(outbox, "put", fail_once)
    assert driven.step() == ("first", None)
    assert driven.on("n") == []
    assert not driven.engine.cluster.assumed
    assert [str(fault) for fault in driven.faults] == ["scheduling default/first failed: KeyError: 'an unexpected key'"]
    assert driven.step(5) == ("first", "n")
    driven.only_work(Phase.BIND)
