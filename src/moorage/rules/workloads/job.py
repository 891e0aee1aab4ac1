"""The job controller: create pods until enough have succeeded or too many have failed.

Each pod has a finalizer until its result is counted, so that no result is lost or counted twice: the controller first stores
its UID or its index in the status, then removes the finalizer, then increases the count. It may be interrupted after any step.

Source  kubernetes, pkg/controller/job: job_controller.go, backoff_utils.go, pod_failure_policy.go, success_policy.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from moorage.api.core import ENDED_PHASES
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document, served
from moorage.rules.workloads import job_outcome
from moorage.rules.workloads.deletion_order import deletion_order
from moorage.rules.workloads.missing_pods import is_ours_to_run, parse_indexes, wanted_active
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.ownership import claim, keys_by_owner
from moorage.rules.workloads.steps import Create, DeleteStep, EventStep, Later, SetStatus, Step, Update

# Gang scheduling of jobs: a workload and a pod group for each eligible job, which its pods refer to.
#
# Until 1.36, a job is eligible if it must be a gang: indexed, with as many parallel pods as completions. Since 1.37, every job
# is that has no controller of its own, and its ``spec.scheduling`` says what group it gets. A job that has already started
# without a group gets none, nor does one whose workload another client created.
#
# Source  kubernetes, pkg/controller/job/job_scheduling_manager.go

_MAX_NAME: Final = 253
#: Workloads as 1.37 serves them, in the form of ``spec.scheduling``.
_LATER_WORKLOADS: Final = served("workloads", "scheduling.k8s.io", "v1beta1")


class JobGrouping(NamedTuple):
    """The pod group of a job, if any. If there are ``steps``, they are executed first and the job is reconciled again."""

    group: str = ""
    steps: tuple[Step, ...] = ()


def keys_of_groups(event: ObjectChange) -> Iterator[str]:
    """Yield the keys of jobs that own the workload or pod group of an event."""
    if event.kind is k8s.WORKLOADS or event.kind is k8s.POD_GROUPS:
        owner = k8s.controller_of(event.latest)
        if owner is not None and owner["kind"] == "Job":
            yield f"{k8s.namespace_of(event.latest)}/{owner['name']}"


def group_for(job: Document, pods: list[Document], world: ObjectIndex, by_spec: bool = False) -> JobGrouping:
    """Return the pod group for a job's new pods, or the steps that create it. ``by_spec``: as since 1.37."""
    spec = k8s.spec_of(job)
    is_named = (spec["template"].get("spec") or {}).get("schedulingGroup") is not None
    if is_named or not (k8s.controller_of(job) is None if by_spec else _is_gang(spec)):
        return JobGrouping()
    workloads = [one for one in world.all(k8s.WORKLOADS, k8s.namespace_of(job)) if _is_about(one, job)]
    if not workloads:
        return JobGrouping(steps=tuple(_make_workload(job, by_spec))) if _is_new(job, pods) else JobGrouping()
    if len(workloads) > 1 or not _is_owned(workloads[0], job) or len(k8s.spec_of(workloads[0])["podGroupTemplates"]) != 1:
        return JobGrouping()
    groups = [one for one in world.all(k8s.POD_GROUPS, k8s.namespace_of(job)) if _origin(one) == k8s.name_of(workloads[0])]
    if not groups:
        return JobGrouping(steps=(_make_group(job, workloads[0], by_spec),))
    return JobGrouping(k8s.name_of(groups[0])) if len(groups) == 1 and _is_owned(groups[0], job) else JobGrouping()


def _is_gang(spec: Document) -> bool:
    number = spec.get("parallelism") or 0
    return number > 1 and spec.get("completionMode") == "Indexed" and spec.get("completions") == number


def _is_new(job: Document, pods: list[Document]) -> bool:
    """Return True for a job that has not started yet."""
    status = k8s.status_of(job)
    has_begun = pods or any(status.get(name) for name in ("startTime", "succeeded", "failed"))
    return not has_begun and k8s.condition_of(job, "Suspended") is None


def _is_about(workload: Document, job: Document) -> bool:
    ref = k8s.spec_of(workload).get("controllerRef") or {}
    return (ref.get("apiGroup"), ref.get("kind"), ref.get("name")) == ("batch", "Job", k8s.name_of(job))


def _is_owned(one: Document, job: Document) -> bool:
    owner = k8s.controller_of(one)
    return owner is not None and owner["uid"] == k8s.uid_of(job)


def _origin(group: Document) -> str:
    found: str = ((k8s.spec_of(group).get("podGroupTemplateRef") or {}).get("workload") or {}).get("workloadName", "")
    return found


# -- creating them ------------------------------------------------------------------------------------------------------


def group_template(scheduling: Mapping[str, Any], parallelism: int | None, priority_class: str) -> Document:
    """Return the template of a job's pod group by its ``spec.scheduling``, as since 1.37: basic if that names no policy."""
    policy = scheduling.get("schedulingPolicy") or {"basic": {}}
    if policy.get("gang") is not None:
        policy = {"gang": {"minCount": max(1, 1 if parallelism is None else parallelism), **policy["gang"]}}
    named = {"priorityClassName": priority_class} if priority_class else {}
    return {**k8s.copied(dict(scheduling)), "schedulingPolicy": policy, **named}


def _make_workload(job: Document, by_spec: bool) -> Iterable[Step]:
    name, spec = workload_name(k8s.name_of(job), k8s.uid_of(job)), k8s.spec_of(job)
    if by_spec:
        kind, priority_class = _LATER_WORKLOADS, (spec["template"].get("spec") or {}).get("priorityClassName") or ""
        template = group_template(spec.get("scheduling") or {}, spec.get("parallelism"), priority_class)
    else:
        kind, template = k8s.WORKLOADS, {"schedulingPolicy": {"gang": {"minCount": spec["parallelism"]}}}
    metadata = {"name": name, "namespace": k8s.namespace_of(job), "ownerReferences": [k8s.reference_to(k8s.JOBS, job)]}
    made = {
        "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": k8s.name_of(job)},
        "podGroupTemplates": [{"name": f"{k8s.name_of(job)}-pgt-0", **template}],
    }
    yield Create(kind, _document(kind.api_version, "Workload", metadata, made))
    yield EventStep(k8s.JOBS, job, "Normal", "WorkloadCreated", f"Created Workload {name} for Job {k8s.name_of(job)}")


def _make_group(job: Document, workload: Document, by_spec: bool) -> Step:
    template = k8s.spec_of(workload)["podGroupTemplates"][0]
    api_version = (_LATER_WORKLOADS if by_spec else k8s.WORKLOADS).api_version
    origin = {"apiVersion": api_version, "kind": "Workload", "name": k8s.name_of(workload), "uid": k8s.uid_of(workload)}
    metadata = {
        "name": group_name(k8s.name_of(workload), template["name"]),
        "namespace": k8s.namespace_of(job),
        "ownerReferences": [k8s.reference_to(k8s.JOBS, job), origin],
    }
    named = {"workloadName": k8s.name_of(workload), "podGroupTemplateName": template["name"]}
    copies = template if by_spec else {"schedulingPolicy": template["schedulingPolicy"]}
    spec = {name: k8s.copied(value) for name, value in copies.items() if name != "name" and value is not None}
    spec["podGroupTemplateRef"] = {"workload": named}
    return Create(k8s.POD_GROUPS, _document(k8s.POD_GROUPS.api_version, "PodGroup", metadata, spec))


def _document(api_version: str, kind: str, metadata: Document, spec: Document) -> Document:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


# -- names: deterministic, as upstream's --------------------------------------------------------------------------------


def workload_name(job: str, uid: str) -> str:
    """Return the name of the workload of a job."""
    mark = _mark(f"(types.UID){uid}")
    return f"{job[: _MAX_NAME - len(mark) - 1]}-{mark}"


def group_name(workload: str, template: str) -> str:
    """Return the name of a workload's pod group."""
    mark = _mark(workload + template)
    room = _MAX_NAME - len(mark) - 2
    half = room // 2
    if len(workload) + len(template) > room:
        if len(workload) <= half:
            template = template[: room - len(workload)]
        elif len(template) <= half:
            workload = workload[: room - len(template)]
        else:
            workload, template = workload[: room - half], template[:half]
    return f"{workload}-{template}-{mark}"


def _mark(text: str) -> str:
    """Return the 32-bit FNV-1a hash of a text, in an alphabet that forms no words."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return "".join(k8s.SAFE_ALPHABET[ord(digit) % len(k8s.SAFE_ALPHABET)] for digit in str(value))


_BURST: Final = 100
#: Backoff after failures, in seconds.
_FIRST_WAIT_S: Final = 10.0
_LONGEST_WAIT_S: Final = 600.0


def is_finished(job: Document) -> bool:
    """Return True for a job that is complete or has failed."""
    return any(k8s.is_condition_true(k8s.status_of(job), name) for name in ("Complete", "Failed"))


class Jobs:
    """``with_groups``: create pod groups for jobs; ``by_spec``: as their ``spec.scheduling`` says."""

    name = "job-controller"

    def __init__(self, with_groups: bool = False, by_spec: bool = False) -> None:
        self._with_groups, self._by_spec = with_groups, by_spec

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        yield from keys_by_owner(event, world, k8s.PODS, k8s.JOBS)
        if self._with_groups:
            yield from keys_of_groups(event)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        job = world.find(k8s.JOBS, key)
        if job is None:
            # Pods of a deleted job lose the finalizer.
            namespace, _, name = key.partition("/")
            pods = world.all(k8s.PODS, namespace)
            yield from _released(one for one in pods if k8s.labels_of(one).get("batch.kubernetes.io/job-name") == name)
            return
        if not is_ours_to_run(k8s.spec_of(job).get("managedBy")):
            return
        claimed = claim(k8s.PODS, k8s.JOBS, job, k8s.selector_of(k8s.spec_of(job).get("selector")), world)
        yield from claimed.steps
        if is_finished(job):
            yield from _released(claimed.held)
            yield from _after_its_time(job, now)
        elif not k8s.is_ending(job):
            grouping = group_for(job, claimed.held, world, self._by_spec) if self._with_groups else JobGrouping()
            yield from grouping.steps or _Sync(job, claimed.held, now, grouping.group).steps()


def _released(pods: Iterable[Document]) -> Iterator[Step]:
    for pod in pods:
        held = pod["metadata"].get("finalizers") or []
        if job_outcome.TRACKED in held:
            yield Update(k8s.PODS, k8s.revised(pod, finalizers=[one for one in held if one != job_outcome.TRACKED]))


def _after_its_time(job: Document, now: float) -> Iterator[Step]:
    lasts_s = k8s.spec_of(job).get("ttlSecondsAfterFinished")
    if lasts_s is None or k8s.is_ending(job):
        return
    conditions = k8s.status_of(job).get("conditions") or ()
    ended = max(k8s.seconds(one.get("lastTransitionTime")) for one in conditions if one["type"] in {"Complete", "Failed"})
    left_s = ended + int(lasts_s) - now
    if left_s > 0:
        yield Later(left_s)
    else:
        yield DeleteStep(k8s.JOBS, job, propagation="Foreground")


class _Sync:
    """One reconcile of an unfinished job."""

    def __init__(self, job: Document, pods: list[Document], now: float, group: str = "") -> None:
        self.job, self.pods, self.now, self.group = job, pods, now, group
        self.spec = k8s.spec_of(job)
        self.status = {"uncountedTerminatedPods": {}, **k8s.status_of(job)}
        self.active = [pod for pod in pods if k8s.is_active(pod)]
        self._ending = [pod for pod in pods if k8s.is_ending(pod) and k8s.status_of(pod).get("phase") not in ENDED_PHASES]

    def steps(self) -> Iterator[Step]:
        fresh = job_outcome.tally(self.job, self.pods)
        if fresh:
            fresh.note_in(self.status)
            yield SetStatus(k8s.JOBS, self.job, dict(self.status))
            yield from _released(fresh.pods)
            fresh.add_to(self.status)
        if not self.spec.get("suspend"):
            self.status.setdefault("startTime", k8s.stamp(self.now))
        outcome = job_outcome.judge(self.job, self.status, self.pods, self.now)
        if outcome is not None:
            yield from self._finish(outcome)
            return
        adjusting = list(self._suspended() if self.spec.get("suspend") else self._adjusted())
        yield from adjusting
        if not any(isinstance(step, (Create, DeleteStep)) for step in adjusting):
            self._set_counts(self.active)
            if self.status != k8s.status_of(self.job):
                yield SetStatus(k8s.JOBS, self.job, self.status)
        elif fresh or self.status.get("conditions") != k8s.status_of(self.job).get("conditions"):
            # Store the conditions now, so that their events are recorded once.
            yield SetStatus(k8s.JOBS, self.job, self.status)
        if (limit_s := self.spec.get("activeDeadlineSeconds")) is not None and self.status.get("startTime"):
            yield Later(max(0.0, k8s.seconds(self.status["startTime"]) + int(limit_s) - self.now) + 0.001)

    def _set_counts(self, active: list[Document]) -> None:
        numbers = {"active": len(active), "ready": sum(map(k8s.is_ready, active)), "terminating": len(self._ending)}
        for name, number in numbers.items():
            self.status.pop(name, None)
            if number or name != "active":
                self.status[name] = number

    # -- creating and deleting pods -------------------------------------------------------------------------------------

    def _adjusted(self) -> Iterator[Step]:
        wanted = self._wanted()
        taken = list(self.active)
        if self.spec.get("podReplacementPolicy") == "Failed":  # terminating pods must end before they are replaced
            taken += self._ending
        if len(self.active) > wanted:
            for pod in deletion_order(self.active, self.active, self.now)[: len(self.active) - wanted]:
                yield from self._withdrawn(pod)
            return
        if self._is_suspended:
            self.status["startTime"] = k8s.stamp(self.now)
            yield self._set_suspended("False", "Resumed")
        missing = wanted - len(taken)
        if missing <= 0:
            return
        if self.spec.get("backoffLimitPerIndex") is not None:
            yield from self._made_by_index(missing, taken)
            return
        wait_s = self._backoff_s(self.pods)
        if wait_s > 0:
            yield Later(wait_s)
            return
        for pod in self._new_pods(min(missing, _BURST), taken):
            yield self._made(pod)

    def _made(self, pod: Document) -> Create:
        if self.group:
            pod["spec"]["schedulingGroup"] = {"podGroupName": self.group}
        return Create(k8s.PODS, pod, owner=(k8s.JOBS, self.job))

    def _made_by_index(self, missing: int, taken: list[Document]) -> Iterator[Step]:
        """Create pods for a job with failure counts and backoff per index."""
        busy = {index for pod in taken if (index := job_outcome.index_of(pod)) is not None}
        failed: dict[int, list[Document]] = {}
        for pod in self.pods:
            if (index := job_outcome.index_of(pod)) is not None and k8s.status_of(pod).get("phase") == "Failed":
                failed.setdefault(index, []).append(pod)
        waits = {index: self._backoff_s(pods) for index, pods in failed.items()}
        waiting = {index: wait_s for index, wait_s in waits.items() if wait_s > 0 and index not in busy}
        if waiting:
            yield Later(min(waiting.values()))
        for index in job_outcome.next_indexes(self.job, self.status, {*busy, *waiting}, min(missing, _BURST)):
            pod = job_outcome.pod_of_job(self.job, index, job_outcome.counted_failures(self.job, failed.get(index, ())))
            yield self._made(pod)

    def _wanted(self) -> int:
        succeeded = int(self.status.get("succeeded") or 0)
        completions = self.spec.get("completions")
        lost = parse_indexes(self.status.get("failedIndexes") or "", int(completions or 0))
        return wanted_active(
            int(self.spec.get("parallelism", 1)), None if completions is None else int(completions),
            succeeded=succeeded, failed_indexes=len(lost), active=len(self.active),
        )  # fmt: skip

    def _new_pods(self, number: int, taken: list[Document]) -> Iterator[Document]:
        if self.spec.get("completionMode") != "Indexed":
            for _ in range(number):
                yield job_outcome.pod_of_job(self.job, None)
            return
        busy = {index for pod in taken if (index := job_outcome.index_of(pod)) is not None}
        for index in job_outcome.next_indexes(self.job, self.status, busy, number):
            yield job_outcome.pod_of_job(self.job, index)

    def _deleted(self, pod: Document) -> Iterator[Step]:
        yield DeleteStep(k8s.PODS, pod)
        yield EventStep(k8s.JOBS, self.job, "Normal", "SuccessfulDelete", f"Deleted pod: {k8s.name_of(pod)}")

    def _withdrawn(self, pod: Document) -> Iterator[Step]:
        """Delete an excess pod without counting a failure."""
        yield from _released([pod])
        yield from self._deleted(pod)

    def _backoff_s(self, pods: Iterable[Document]) -> float:
        """Return the remaining backoff before new pods: it doubles with each failure since the last success."""
        ends = sorted((_ended_at(pod), k8s.status_of(pod).get("phase") == "Failed") for pod in pods if not k8s.is_active(pod))
        failures, last = 0, 0.0
        for when, failed in ends:
            failures, last = (failures + 1, when) if failed else (0, last)
        if not failures:
            return 0.0
        return last + min(_FIRST_WAIT_S * 2.0 ** min(failures - 1, 16), _LONGEST_WAIT_S) - self.now

    # -- suspending -----------------------------------------------------------------------------------------------------

    def _suspended(self) -> Iterator[Step]:
        for pod in self.active:
            yield from self._withdrawn(pod)
        self.status.pop("startTime", None)
        if not self._is_suspended:
            yield self._set_suspended("True", "Suspended")

    @property
    def _is_suspended(self) -> bool:
        return k8s.is_condition_true(self.status, "Suspended")

    def _set_suspended(self, truth: str, word: str) -> EventStep:
        self.status["conditions"] = self._with_condition("Suspended", truth, f"Job{word}", f"Job {word.lower()}")
        return EventStep(k8s.JOBS, self.job, "Normal", word, f"Job {word.lower()}")

    def _with_condition(self, name: str, truth: str, reason: str, message: str) -> list[Document]:
        held, when = self.status.get("conditions") or [], k8s.stamp(self.now)
        return k8s.with_condition(held, name, truth, self.now, reason, message, lastProbeTime=when)

    # -- ending ---------------------------------------------------------------------------------------------------------

    def _finish(self, outcome: job_outcome.JobOutcome) -> Iterator[Step]:
        """Delete active pods; the job is finished when all pods have ended."""
        for pod in self.active:
            yield from self._deleted(pod)
        interim, final = ("SuccessCriteriaMet", "Complete") if outcome.good else ("FailureTarget", "Failed")
        left = [pod for pod in self.pods if k8s.status_of(pod).get("phase") not in ENDED_PHASES]
        for name in (interim,) if left else (interim, final):
            self.status["conditions"] = self._with_condition(name, "True", outcome.reason, outcome.message)
        self._set_counts([])
        if not left and outcome.good:
            self.status["completionTime"] = k8s.stamp(self.now)
        yield SetStatus(k8s.JOBS, self.job, self.status)
        if not left:
            told = ("Normal", "Completed", "Job completed") if outcome.good else ("Warning", outcome.reason, outcome.message)
            yield EventStep(k8s.JOBS, self.job, *told)


def _ended_at(pod: Document) -> float:
    ends = [
        k8s.seconds(((one.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for one in k8s.status_of(pod).get("containerStatuses") or ()
    ]
    return max(ends, default=0.0) or k8s.seconds(pod["metadata"].get("deletionTimestamp"))
