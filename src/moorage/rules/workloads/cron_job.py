"""The cron job controller: create a job at each scheduled time, and delete old jobs beyond the history limits.

Source  kubernetes, pkg/controller/cronjob: cronjob_controllerv2.go and utils.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from moorage.api.cron import CronError, Schedule, parse_schedule, zone_named
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document
from moorage.rules.workloads.job import is_finished
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.ownership import keys_by_owner
from moorage.rules.workloads.steps import Create, DeleteStep, EventStep, Later, SetStatus, Step

#: Beyond this number of missed start times, a warning event is recorded.
_MANY: Final = 100
_SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"


class CronJobs:
    name = "cronjob-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        return keys_by_owner(event, world, k8s.JOBS, k8s.CRON_JOBS)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        cron = world.find(k8s.CRON_JOBS, key)
        if cron is None or k8s.is_ending(cron):
            return
        yield from _Sync(cron, world.controlled(k8s.JOBS, cron), now).steps()


class _Sync:
    def __init__(self, cron: Document, jobs: list[Document], now: float) -> None:
        self.cron, self.now = cron, now
        self.spec = k8s.spec_of(cron)
        self.jobs = sorted(jobs, key=k8s.age_order)
        self.before = {one.get("uid"): str(one.get("name")) for one in k8s.status_of(cron).get("active") or ()}
        going_on = [job for job in self.jobs if not is_finished(job)]
        self.running = [
            job for job in going_on if k8s.uid_of(job) in self.before or (self._is_own(job) and not k8s.is_ending(job))
        ]
        self.strange = [job for job in going_on if job not in self.running]
        self.status: dict[str, Any] = {name: value for name, value in k8s.status_of(cron).items() if name != "active"}

    def steps(self) -> Iterator[Step]:
        yield from self._tidied()
        for job in self.strange:
            text = f"Saw a job that the controller did not create or forgot: {k8s.name_of(job)}"
            yield self._note("Warning", "UnexpectedJob", text)
        there = {k8s.uid_of(job) for job in self.jobs}
        for uid, name in self.before.items():
            if uid not in there:
                yield self._note("Normal", "MissingJob", f"Active job went missing: {name}")
        yield from self._completion_events()
        yield from self._scheduled()
        if self.running:
            self.status["active"] = [_reference(job) for job in self.running]
        if self.status != k8s.status_of(self.cron):
            yield SetStatus(k8s.CRON_JOBS, self.cron, self.status)

    def _scheduled(self) -> Iterator[Step]:
        try:
            zone = zone_named(self.spec.get("timeZone"))
        except CronError as error:
            yield self._note("Warning", "UnknownTimeZone", f'invalid timeZone: "{self.spec.get("timeZone")}": {error}')
            return
        if self.spec.get("suspend"):
            return
        try:
            schedule = parse_schedule(str(self.spec.get("schedule", "")), zone)
        except CronError as error:
            yield self._note("Warning", "UnparseableSchedule", f'unparseable schedule: "{self.spec.get("schedule")}" : {error}')
            return
        yield from self._follow(schedule)

    def _is_own(self, job: Document) -> bool:
        """Return whether a job was created for a scheduled time, rather than by hand."""
        due = k8s.annotations_of(job).get(_SCHEDULED)
        return due is not None and k8s.name_of(job) == self._name(k8s.seconds(due))

    def _name(self, due: float) -> str:
        return f"{k8s.name_of(self.cron)}-{int(due) // 60}"

    def _note(self, kind: str, reason: str, text: str) -> EventStep:
        return EventStep(k8s.CRON_JOBS, self.cron, kind, reason, text)

    def _follow(self, schedule: Schedule) -> Iterator[Step]:
        due, missed = self._last_due(schedule)
        following = schedule.after(self.now)
        if following is not None:
            yield Later(following - self.now + 0.001)
        if due is None:
            return
        if missed > _MANY:
            text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            yield self._note("Warning", "TooManyMissedTimes", text)
        yield from self._started(due)

    def _last_due(self, schedule: Schedule) -> tuple[float | None, int]:
        """Return the last missed start time, and the number of missed ones."""
        since = k8s.seconds(self.status.get("lastScheduleTime")) or k8s.seconds(self.cron["metadata"].get("creationTimestamp"))
        deadline_s = self.spec.get("startingDeadlineSeconds")
        if deadline_s is not None:
            since = max(since, self.now - int(deadline_s))
        last, count = None, 0
        due = schedule.after(since)
        while due is not None and due <= self.now:
            last, count = due, count + 1
            due = schedule.after(due)
            if count > 10 * _MANY:
                # Far behind: the last start time is at most one period ago.
                period = (due or last) - last
                skipped = max(0.0, (self.now - last) // max(period, 60.0) - 1)
                due = schedule.after(last + skipped * period)
        return last, count

    def _started(self, due: float) -> Iterator[Step]:
        policy = self.spec.get("concurrencyPolicy", "Allow")
        if policy == "Forbid" and self.running:
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            yield self._note("Normal", "JobAlreadyActive", text)
            return
        if policy == "Replace":
            for job in self.running:
                yield DeleteStep(k8s.JOBS, job, propagation="Background")
                yield self._note("Normal", "SuccessfulDelete", f"Deleted job {k8s.name_of(job)}")
            self.running = []
        job = self._job(due)
        if all(k8s.name_of(one) != k8s.name_of(job) for one in self.jobs):
            yield Create(k8s.JOBS, job, or_keep=True)
            yield self._note("Normal", "SuccessfulCreate", f"Created job {k8s.name_of(job)}")
        self.status["lastScheduleTime"] = k8s.stamp(due)

    def _job(self, due: float) -> Document:
        template = self.spec.get("jobTemplate") or {}
        metadata = template.get("metadata") or {}
        return {
            "apiVersion": k8s.JOBS.api_version,
            "kind": "Job",
            "metadata": {
                "name": self._name(due),
                "namespace": k8s.namespace_of(self.cron),
                "labels": dict(metadata.get("labels") or {}),
                "annotations": {**(metadata.get("annotations") or {}), _SCHEDULED: k8s.stamp(due)},
                "ownerReferences": [k8s.reference_to(k8s.CRON_JOBS, self.cron)],
            },
            "spec": {**k8s.spec_of(template), "template": _own(k8s.spec_of(template).get("template") or {})},
        }

    def _tidied(self) -> Iterator[Step]:
        """Delete the oldest finished jobs beyond the history limits."""
        for name, usual, wanted in (("successfulJobsHistoryLimit", 3, "Complete"), ("failedJobsHistoryLimit", 1, "Failed")):
            limit = self.spec.get(name, usual)
            over = [job for job in self.jobs if k8s.is_condition_true(k8s.status_of(job), wanted) and not k8s.is_ending(job)]
            for job in over[: max(0, len(over) - int(limit))]:
                yield DeleteStep(k8s.JOBS, job, propagation="Background")
                yield self._note("Normal", "SuccessfulDelete", f"Deleted job {k8s.name_of(job)}")

    def _completion_events(self) -> Iterator[Step]:
        """Record events about jobs of the active list that have finished."""
        for job in self.jobs:
            if is_finished(job) and k8s.uid_of(job) in self.before:
                ended = "Complete" if k8s.is_condition_true(k8s.status_of(job), "Complete") else "Failed"
                yield self._note("Normal", "SawCompletedJob", f"Saw completed job: {k8s.name_of(job)}, condition: {ended}")
            done, last = k8s.status_of(job).get("completionTime"), self.status.get("lastSuccessfulTime")
            if done and k8s.seconds(done) > k8s.seconds(last):
                self.status["lastSuccessfulTime"] = done


def _own(template: Document) -> Document:
    """Return a copy of a template, deep enough to change the labels."""
    metadata = template.get("metadata") or {}
    return {**template, "metadata": {**metadata, "labels": dict(metadata.get("labels") or {})}}


def _reference(job: Document) -> dict[str, str]:
    return {
        "apiVersion": k8s.JOBS.api_version, "kind": "Job", "name": k8s.name_of(job), "namespace": k8s.namespace_of(job),
        "uid": k8s.uid_of(job), "resourceVersion": job["metadata"].get("resourceVersion", ""),
    }  # fmt: skip
