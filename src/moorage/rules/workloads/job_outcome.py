"""Count a job's ended pods, and decide from the counts whether the job is finished.

Source  kubernetes, pkg/controller/job: job_controller.go, tracking_utils.go, pod_failure_policy.go, success_policy.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from moorage.api.core import ENDED_PHASES
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document
from moorage.api.quantity import parse_int64
from moorage.rules.workloads.missing_pods import (
    COMPLETION_INDEX,
    Indexes,
    completion_index,
    free_indexes,
    indexed_base,
    parse_indexes,
)
from moorage.rules.workloads.ownership import pod_of_template

# The pods of a job, and the completion indexes of an indexed job.
#
# Source  kubernetes, pkg/controller/job/indexed_job_utils.go and job_controller.go, manageJob

#: The finalizer of a pod whose result is not counted yet.
TRACKED: Final = "batch.kubernetes.io/job-tracking"
#: Annotation: the number of earlier failures of the same index, for a backoff limit per index.
_FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
_VARIABLE: Final = "JOB_COMPLETION_INDEX"


def index_of(pod: Document) -> int | None:
    """Return the completion index of a pod; None without one."""
    return completion_index(k8s.annotations_of(pod), k8s.labels_of(pod))


def failures_of(pod: Document) -> int:
    """Return the number of earlier failures of the same index."""
    return parse_int64(k8s.annotations_of(pod).get(_FAILURES, "")) or 0


def next_indexes(job: Document, status: dict[str, Any], busy: Collection[int], number: int) -> list[int]:
    """Return the lowest indexes that neither succeeded nor failed permanently, and are not ``busy``."""
    completions = int(k8s.spec_of(job).get("completions") or 0)
    done = parse_indexes(status.get("completedIndexes") or "", completions)
    return list(islice(free_indexes(completions, done, status.get("failedIndexes") or "", busy), number))


def pod_of_job(job: Document, index: int | None, failures: int = 0) -> Document:
    """Return a new pod of a job, with an index or without; ``failures``: earlier failures of the index."""
    template = k8s.spec_of(job).get("template") or {}
    finalizers = [*((template.get("metadata") or {}).get("finalizers") or ()), TRACKED]
    if index is None:
        return pod_of_template(k8s.JOBS, job, template, generateName=f"{k8s.name_of(job)}-", finalizers=finalizers)
    pod = pod_of_template(k8s.JOBS, job, template, generateName=indexed_base(k8s.name_of(job), index), finalizers=finalizers)
    for part in ("labels", "annotations"):
        pod["metadata"][part] = {**pod["metadata"].get(part, {}), COMPLETION_INDEX: str(index)}
    if k8s.spec_of(job).get("backoffLimitPerIndex") is not None:
        pod["metadata"]["annotations"][_FAILURES] = str(failures)
    pod["spec"].setdefault("hostname", f"{k8s.name_of(job)}-{index}")
    for part in ("initContainers", "containers"):
        if part in pod["spec"]:
            pod["spec"][part] = [_with_index_variable(one) for one in pod["spec"][part]]
    return pod


def _with_index_variable(container: dict[str, Any]) -> dict[str, Any]:
    held = container.get("env") or []
    if any(one.get("name") == _VARIABLE for one in held):
        return container
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
    return {**container, "env": [*held, {"name": _VARIABLE, "valueFrom": source}]}


class JobOutcome(NamedTuple):
    good: bool
    reason: str
    message: str


@dataclass(slots=True)
class FinishedPods:
    """Pods that have ended and are not counted yet."""

    pods: list[Document] = field(default_factory=list)
    succeeded: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    #: Failures that do not count towards the backoff limit.
    ignored: list[str] = field(default_factory=list)
    indexes: Indexes | None = None
    #: Failed indexes that are not retried.
    given_up: Indexes | None = None

    def __bool__(self) -> bool:
        return bool(self.succeeded or self.failed or self.ignored)

    def note_in(self, status: dict[str, Any]) -> None:
        """Write what must not be lost while finalizers are removed: indexes, and the UIDs of pods that are counted later.

        An index that has succeeded is counted once, so that its pod needs no UID.
        """
        uncounted = {"succeeded": [] if self.indexes is not None else self.succeeded, "failed": self.failed}
        status["uncountedTerminatedPods"] = {outcome: uids for outcome, uids in uncounted.items() if uids}
        if self.given_up is not None:
            status["failedIndexes"] = str(self.given_up)
        if self.indexes is not None and self.indexes.spans:
            status["completedIndexes"] = str(self.indexes)
            status["succeeded"] = len(self.indexes)

    def add_to(self, status: dict[str, Any]) -> None:
        """Add the pods with UIDs in a status to its counts."""
        status["uncountedTerminatedPods"] = {}
        if self.failed:
            status["failed"] = int(status.get("failed") or 0) + len(self.failed)
        if self.indexes is None and self.succeeded:
            status["succeeded"] = int(status.get("succeeded") or 0) + len(self.succeeded)


def tally(job: Document, pods: Iterable[Document]) -> FinishedPods:
    """Return the ended pods that still have the finalizer, or whose UIDs are in the status after an interrupted update."""
    found = FinishedPods()
    noted = k8s.status_of(job).get("uncountedTerminatedPods") or {}
    written = {uid for name in ("succeeded", "failed") for uid in noted.get(name) or ()}
    for pod in pods:
        tracked = TRACKED in (pod["metadata"].get("finalizers") or ())
        if not tracked or k8s.phase_of(pod) not in ENDED_PHASES:
            continue
        found.pods.append(pod)
        written.discard(k8s.uid_of(pod))
        if k8s.phase_of(pod) == "Succeeded":
            found.succeeded.append(k8s.uid_of(pod))
        elif _action(job, pod) == "Ignore":
            found.ignored.append(k8s.uid_of(pod))
        else:
            found.failed.append(k8s.uid_of(pod))
    for name, counted in (("succeeded", found.succeeded), ("failed", found.failed)):
        counted += [uid for uid in noted.get(name) or () if uid in written]
    if k8s.spec_of(job).get("completionMode") == "Indexed":
        _number(job, found)
    return found


def _number(job: Document, found: FinishedPods) -> None:
    completions = int(k8s.spec_of(job).get("completions") or 0)
    good = [index for pod in found.pods if k8s.phase_of(pod) == "Succeeded" and (index := index_of(pod)) is not None]
    fresh = [index for index in good if 0 <= index < completions]
    found.indexes = parse_indexes(k8s.status_of(job).get("completedIndexes") or "", completions).with_numbers(fresh)
    if k8s.spec_of(job).get("backoffLimitPerIndex") is not None:
        lost = [index for pod in found.pods if _gives_up(job, pod) and (index := index_of(pod)) is not None]
        found.given_up = parse_indexes(k8s.status_of(job).get("failedIndexes") or "", completions).with_numbers(lost)


def _gives_up(job: Document, pod: Document) -> bool:
    """Return True for a failure after which the index is not retried."""
    if k8s.phase_of(pod) != "Failed":
        return False
    action = _action(job, pod)
    return action == "FailIndex" or (action != "Ignore" and failures_of(pod) >= int(k8s.spec_of(job)["backoffLimitPerIndex"]))


def counted_failures(job: Document, pods: Iterable[Document]) -> int:
    """Return how many failures of one index count."""
    return max((failures_of(pod) + (_action(job, pod) != "Ignore") for pod in pods), default=0)


# -- is the job finished? -----------------------------------------------------------------------------------------------


def judge(job: Document, status: dict[str, Any], pods: list[Document], now: float) -> JobOutcome | None:
    """Return the outcome of a job, None while it is unfinished; ``status`` contains all counts."""
    for one in status.get("conditions") or ():
        if one["type"] in {"SuccessCriteriaMet", "FailureTarget"} and one["status"] == "True":
            return JobOutcome(one["type"] == "SuccessCriteriaMet", one.get("reason", ""), one.get("message", ""))
    return _failure(job, status, pods, now) or _success(job, status, pods)


def _failure(job: Document, status: dict[str, Any], pods: list[Document], now: float) -> JobOutcome | None:
    spec = k8s.spec_of(job)
    for action, why in (_matched(job, pod) for pod in pods if k8s.phase_of(pod) == "Failed"):
        if action == "FailJob":
            return JobOutcome(False, "PodFailurePolicy", why)
    if (lost := _failed_indexes(spec, status)) is not None:
        return lost
    limit = int(spec.get("backoffLimit", 6))
    in_place = k8s.spec_of(spec.get("template") or {}).get("restartPolicy") == "OnFailure"
    restarts = sum(_restarts(pod) for pod in pods if k8s.is_active(pod)) if in_place else 0
    if int(status.get("failed") or 0) > limit or (restarts and restarts >= max(limit, 1)):
        return JobOutcome(False, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    lasts_s = spec.get("activeDeadlineSeconds")
    runs = lasts_s is not None and status.get("startTime") and not spec.get("suspend")
    if runs and now >= k8s.seconds(status["startTime"]) + int(lasts_s or 0):
        return JobOutcome(False, "DeadlineExceeded", "Job was active longer than specified deadline")
    return None


def _failed_indexes(spec: dict[str, Any], status: dict[str, Any]) -> JobOutcome | None:
    """Return the failure of a job with a backoff limit per index; None otherwise."""
    if spec.get("backoffLimitPerIndex") is None:
        return None
    completions = int(spec.get("completions") or 0)
    lost = parse_indexes(status.get("failedIndexes") or "", completions)
    most = spec.get("maxFailedIndexes")
    if most is not None and len(lost) > int(most):
        text = "Job has exceeded the specified maximal number of failed indexes"
        return JobOutcome(False, "MaxFailedIndexesExceeded", text)
    if lost.spans and len(lost) + int(status.get("succeeded") or 0) >= completions:
        return JobOutcome(False, "FailedIndexes", "Job has failed indexes")
    return None


def _restarts(pod: Document) -> int:
    if k8s.phase_of(pod) not in {"Running", "Pending"}:
        return 0
    statuses = (*(k8s.status_of(pod).get("initContainerStatuses") or ()), *(k8s.status_of(pod).get("containerStatuses") or ()))
    return sum(int(one.get("restartCount") or 0) for one in statuses)


def _success(job: Document, status: dict[str, Any], pods: list[Document]) -> JobOutcome | None:
    spec = k8s.spec_of(job)
    if (policy := spec.get("successPolicy")) and spec.get("completionMode") == "Indexed":
        done = parse_indexes(status.get("completedIndexes") or "", int(spec.get("completions") or 0))
        for number, rule in enumerate(policy.get("rules") or ()):
            if _meets(rule, done, int(spec.get("completions") or 0)):
                return JobOutcome(True, "SuccessPolicy", f"Matched rules at index {number}")
    succeeded = int(status.get("succeeded") or 0)
    completions = spec.get("completions")
    active = any(map(k8s.is_active, pods))
    over = succeeded > 0 and not active if completions is None else succeeded >= int(completions)
    return JobOutcome(True, "CompletionsReached", "Reached expected number of succeeded pods") if over else None


def _meets(rule: dict[str, Any], done: Indexes, completions: int) -> bool:
    wanted = parse_indexes(rule["succeededIndexes"], completions) if rule.get("succeededIndexes") else None
    good = len(done)
    if wanted is not None:
        both = len(done) + len(wanted) - len(done.with_spans(wanted.spans))
        good = both
    count = rule.get("succeededCount")
    if count is None:
        return wanted is not None and good == len(wanted)
    return good >= int(count)


# -- pod failure policy -------------------------------------------------------------------------------------------------


def _action(job: Document, pod: Document) -> str:
    return _matched(job, pod)[0]


def _matched(job: Document, pod: Document) -> tuple[str, str]:
    """Return the action of the failure policy for a failed pod, and a text about the matching rule."""
    for number, rule in enumerate((k8s.spec_of(job).get("podFailurePolicy") or {}).get("rules") or ()):
        action = rule.get("action", "Count")
        if (codes := rule.get("onExitCodes")) is not None:
            for name, code in _exit_codes(pod):
                if _takes(codes, name, code):
                    text = f"Container {name} for pod {k8s.key_of(pod)} failed with exit code {code}"
                    return action, f"{text} matching {action} rule at index {number}"
        held = Counter((one.get("type"), one.get("status")) for one in k8s.status_of(pod).get("conditions") or ())
        for asked in rule.get("onPodConditions") or ():
            if held[asked.get("type"), asked.get("status", "True")]:
                text = f"Pod {k8s.key_of(pod)} has condition {asked.get('type')}"
                return action, f"{text} matching {action} rule at index {number}"
    return "Count", ""


def _exit_codes(pod: Document) -> Iterable[tuple[str, int]]:
    statuses = (*(k8s.status_of(pod).get("containerStatuses") or ()), *(k8s.status_of(pod).get("initContainerStatuses") or ()))
    for one in statuses:
        ended = (one.get("state") or {}).get("terminated")
        if ended is not None and ended.get("exitCode"):
            yield one["name"], int(ended["exitCode"])


def _takes(codes: dict[str, Any], name: str, code: int) -> bool:
    if codes.get("containerName") and codes["containerName"] != name:
        return False
    return (code in (codes.get("values") or ())) is (codes.get("operator") == "In")
