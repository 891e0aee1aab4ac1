"""Table cells of workloads, jobs and disruption budgets.

Source  kubernetes, pkg/printers/internalversion/printers.go
"""

from __future__ import annotations

from typing import Final

from moorage.apiserver.tables.cells import (
    NONE,
    Cell,
    age,
    age_of,
    at,
    containers_of,
    epoch_of,
    human_duration,
    items,
    name_of,
    number,
    pairs,
    selector_of,
    word,
)
from moorage.apiserver.vocabulary.records import Document

__all__ = [
    "budget", "controller_revision", "cron_job", "daemon_set", "deployment", "job", "pod_template", "replica_set",
    "replication_controller", "stateful_set",
]  # fmt: skip


def _template(found: Document) -> list[Cell]:
    return containers_of(at(found, "spec.template.spec"))


def pod_template(found: Document, now: float) -> list[Cell]:
    """Return the cells of a pod template."""
    return [name_of(found), *containers_of(at(found, "template.spec")), pairs(at(found, "template.metadata.labels"))]


def _selector(found: Document) -> str:
    return selector_of(at(found, "spec.selector"))


def deployment(found: Document, now: float) -> list[Cell]:
    """Return the cells of a deployment."""
    ready = f"{number(found, 'status.readyReplicas')}/{number(found, 'spec.replicas')}"
    counts = [number(found, f"status.{name}Replicas") for name in ("updated", "available")]
    return [name_of(found), ready, *counts, age_of(found, now), *_template(found), _selector(found)]


_REPLICAS: Final = ("spec.replicas", "status.replicas", "status.readyReplicas")


def replica_set(found: Document, now: float) -> list[Cell]:
    """Return the cells of a replica set."""
    counts = [number(found, path) for path in _REPLICAS]
    return [name_of(found), *counts, age_of(found, now), *_template(found), _selector(found)]


def replication_controller(found: Document, now: float) -> list[Cell]:
    """Return the cells of a replication controller."""
    counts = [number(found, path) for path in _REPLICAS]
    return [name_of(found), *counts, age_of(found, now), *_template(found), pairs(at(found, "spec.selector"))]


def stateful_set(found: Document, now: float) -> list[Cell]:
    """Return the cells of a stateful set."""
    ready = f"{number(found, 'status.readyReplicas')}/{number(found, 'spec.replicas')}"
    return [name_of(found), ready, age_of(found, now), *_template(found)]


def daemon_set(found: Document, now: float) -> list[Cell]:
    """Return the cells of a daemon set."""
    names = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable")
    counts = [number(found, f"status.{name}") for name in names]
    where = pairs(at(found, "spec.template.spec.nodeSelector"))
    return [name_of(found), *counts, where, age_of(found, now), *_template(found), _selector(found)]


def controller_revision(found: Document, now: float) -> list[Cell]:
    """Return the cells of a controller revision."""
    owner = next((one for one in found["metadata"].get("ownerReferences") or () if one.get("controller")), None)
    return [name_of(found), _owner(owner) if owner else NONE, number(found, "revision"), age_of(found, now)]


def _owner(owner: Document) -> str:
    group, slash, _ = str(owner.get("apiVersion", "")).partition("/")
    kind = str(owner.get("kind", "")).lower()
    return f"{kind}.{group}/{owner['name']}" if slash else f"{kind}/{owner['name']}"


#: Job statuses, by the first true condition; Terminating comes between the two groups.
_FINISHED: Final = ("Complete", "Failed")
_UNFINISHED: Final = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def job(found: Document, now: float) -> list[Cell]:
    """Return the cells of a job."""
    names = [name_of(found), _job_state(found), _completions(found), _duration(found, now), age_of(found, now)]
    return [*names, *_template(found), _selector(found)]


def _job_state(found: Document) -> str:
    first = {one.get("type"): one.get("status") for one in reversed(items(found, "status.conditions"))}
    true = [kind for kind, status in first.items() if status == "True"]
    terminating = ["Terminating"] if found["metadata"].get("deletionTimestamp") else []
    states = [
        *(one for one in _FINISHED if one in true),
        *terminating,
        *(one for one in _UNFINISHED if one in true),
    ]
    return states[0] if states else "Running"


def _completions(found: Document) -> str:
    succeeded, wanted, at_a_time = (
        number(found, "status.succeeded"),
        at(found, "spec.completions"),
        number(found, "spec.parallelism"),
    )
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    return f"{succeeded}/1 of {at_a_time}" if at_a_time > 1 else f"{succeeded}/1"


def _duration(found: Document, now: float) -> str:
    started, ended = (epoch_of(at(found, f"status.{name}Time")) for name in ("start", "completion"))
    return human_duration((now if ended is None else ended) - started) if started is not None else ""


def cron_job(found: Document, now: float) -> list[Cell]:
    """Return the cells of a cron job."""
    last = at(found, "status.lastScheduleTime")
    suspended, made = at(found, "spec.suspend"), at(found, "spec.jobTemplate.spec", {})
    return [
        name_of(found), word(found, "spec.schedule"), word(found, "spec.timeZone", NONE),
        "<unset>" if suspended is None else str(suspended), len(items(found, "status.active")),
        age(last, now) if last else NONE, age_of(found, now),
        *containers_of(at(made, "template.spec")), selector_of(made.get("selector")),
    ]  # fmt: skip


def budget(found: Document, now: float) -> list[Cell]:
    """Return the cells of a pod disruption budget."""
    bounds = [at(found, f"spec.{name}") for name in ("minAvailable", "maxUnavailable")]
    shown = ["N/A" if bound is None else str(bound) for bound in bounds]
    return [name_of(found), *shown, number(found, "status.disruptionsAllowed"), age_of(found, now)]
