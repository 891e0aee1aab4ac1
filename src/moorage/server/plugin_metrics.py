"""How long plugins take, and how often they are asked: a profile whose every call is watched.

A watched call costs two looks at the clock. A call from within another (the what-ifs of preemption) belongs to that one. What
a point took in an attempt is the sum of its plugins' calls; the calls themselves are measured in one attempt out of ten, as
kube-scheduler does.

A profile that is not watched is what it was: simulations and benchmarks pay nothing.

Source  kube-scheduler, framework/runtime/framework.go and instrumented_plugins.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from moorage.framework.points import PostFilterResult
from moorage.framework.profile import Profile, Step
from moorage.framework.verdicts import Code, Hold, Reject, Skip, Wait
from moorage.server.metric_types import CounterVec, Histogram

__all__ = ["SAMPLED", "Probe"]

#: One attempt out of so many has its plugins' calls measured one by one.
SAMPLED: Final = 10
#: Points as metrics name them. Work that is carried out later (PreBind, Bind) is measured by whoever does that.
_LABELS: Final = {
    "preEnqueue": "PreEnqueue", "preFilter": "PreFilter", "filter": "Filter", "postFilter": "PostFilter",
    "preScore": "PreScore", "score": "Score", "reserve": "Reserve", "permit": "Permit", "postBind": "PostBind",
}  # fmt: skip
_COUNTED: Final = frozenset(["PreFilter", "Filter", "PreScore", "Score"])
#: Points that belong to no attempt: PostBind is told of call by call, PreEnqueue when a pod has been through.
_POST_BIND: Final = "PostBind"
_PRE_ENQUEUE: Final = "PreEnqueue"
_POST_FILTER: Final = "PostFilter"
_SUCCESS: Final = Code.SUCCESS.value
_SKIP: Final = Code.SKIP.value
_ERROR: Final = Code.ERROR.value
_PASSING: Final = frozenset([_SUCCESS, _SKIP])
_NOT_YET: Final = (0.0, _SUCCESS)


class Probe:
    """Watches the calls of all profiles. ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float], points: Histogram, calls: Histogram, evaluations: CounterVec) -> None:
        self._clock, self._points, self._calls = clock, points, calls
        self._evaluations = evaluations
        self._inside = False
        self._sampled = False
        self._attempts = 0
        #: Point → seconds and status, of the attempt that is being made.
        self._took: dict[str, tuple[float, str]] = {}
        #: Profile → how many PreEnqueue plugins it has; and of the pod that they look at: seconds, and how many let it pass.
        self._gates: dict[str, int] = {}
        self._gating = (0.0, 0)

    def watched(self, profile: Profile) -> Profile:
        """Return a profile that does the same and tells of it."""
        self._gates[profile.scheduler_name] = len(profile.at("preEnqueue"))
        steps = {
            point: tuple(self._watched(step, _LABELS[point], profile.scheduler_name) for step in in_point)
            if point in _LABELS
            else in_point
            for point, in_point in profile.steps.items()
        }
        return replace(profile, steps=steps)

    def began(self) -> None:
        """An attempt begins: what was measured since the last one belongs to none."""
        self._took.clear()
        self._sampled = self._attempts % SAMPLED == 0

    def ended(self, profile: str) -> None:
        """The attempt is over: tell how long each point took."""
        self._attempts += 1
        for point, (seconds, status) in self._took.items():
            self._points.observe(seconds, point, status, profile)
        self._took.clear()

    def _watched(self, step: Step, point: str, profile: str) -> Step:
        call, clock, name = step.call, self._clock, step.name
        asked, counted, drains = (name, point, profile), point in _COUNTED, point == "Filter"
        if counted:
            self._evaluations.inc(*asked, by=0.0)

        def counting(*args: Any) -> Any:
            answer = call(*args)
            if counted and not isinstance(answer, Skip):
                self._evaluations.inc(*asked)
            return answer

        def measured(*args: Any) -> Any:
            if self._inside:
                return counting(*args)
            self._inside = True
            answer: Any = None
            status = _ERROR
            begun = clock()
            try:
                answer = counting(*args)
                if drains and not isinstance(answer, list):
                    answer = list(answer or ())  # a generator works only when it is read
                status = _SUCCESS if drains or answer is None else _status(answer)
            finally:
                seconds = clock() - begun
                self._inside = False
                self._note(point, profile, seconds, status)
                if self._sampled:
                    self._calls.observe(seconds, name, point, _verdict(answer) if drains and status == _SUCCESS else status)
            return answer

        return Step(name, step.plugin, measured, step.one_by_one)

    def _note(self, point: str, profile: str, seconds: float, status: str) -> None:
        if point == _POST_BIND:
            self._points.observe(seconds, point, status, profile)
        elif point == _PRE_ENQUEUE:
            self._gated(profile, seconds, status)
        else:
            so_far, before = self._took.get(point, _NOT_YET)
            # A plugin that passes says nothing of the point, unless it is one that mends what others could not.
            said = before if status in _PASSING and point != _POST_FILTER else status
            self._took[point] = (so_far + seconds, said)

    def _gated(self, profile: str, seconds: float, status: str) -> None:
        """Tell of the point once a pod was held up or has passed all; kube-scheduler calls either a success."""
        so_far, passed = self._gating
        so_far, passed = so_far + seconds, passed + 1
        if status == _SUCCESS and passed < self._gates[profile]:
            self._gating = (so_far, passed)
            return
        self._points.observe(so_far, _PRE_ENQUEUE, _SUCCESS, profile)
        self._gating = (0.0, 0)


def _status(answer: Any) -> str:
    """Return the status that an answer stands for, other than none at all."""
    if isinstance(answer, (Hold, PostFilterResult)):
        return answer.code.value
    if isinstance(answer, Skip):
        return _SKIP
    return Code.WAIT.value if isinstance(answer, Wait) else _SUCCESS


def _verdict(rejects: list[Reject]) -> str:
    """Return the gravest status that a Filter plugin gave a row."""
    hit = [reject for reject in rejects if isinstance(reject, Reject) and reject.rows.any()]
    if not hit:
        return _SUCCESS
    if any(reject.error for reject in hit):
        return Code.ERROR.value
    final = any(reject.unresolvable is True for reject in hit)
    return Code.UNRESOLVABLE.value if final else Code.UNSCHEDULABLE.value
