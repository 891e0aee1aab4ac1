"""Table cells that no path leads to: field access, ages, selectors and containers in kubectl's format, pods and workloads.

``columns.toml`` names the functions that get the object and the time, and return one cell or several.

Source  kubernetes, pkg/printers/internalversion/printers.go; apimachinery, pkg/util/duration and pkg/labels
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from moorage.api.core import ENDED_PHASES
from moorage.api.documents.records import is_condition_true
from moorage.api.documents.served_kinds import Document
from moorage.api.validation.rule_tables import field_of

Cell = str | int | float | bool | None
NONE: Final = "<none>"


# -- values ------------------------------------------------------------------------------------------------------------


def at(document: Mapping[str, Any], path: str, absent: Any = None) -> Any:
    """Return the value at a dotted path, or ``absent``."""
    found = field_of(document, path)
    return absent if found is None else found


def word(document: Mapping[str, Any], path: str, absent: str = "") -> str:
    """Return the string at a dotted path, or ``absent``."""
    return str(at(document, path) or absent)


def items(document: Mapping[str, Any], path: str) -> list[Any]:
    """Return the list at a dotted path, or []."""
    found = at(document, path)
    return found if isinstance(found, list) else []


# -- times -------------------------------------------------------------------------------------------------------------


def human_duration(seconds: float) -> str:
    """Return a duration in kubectl's format, with up to two units: ``5m10s``, ``3d4h``, ``2y30d``."""
    left = int(seconds)
    if left < 0:
        return "<invalid>" if left < -1 else "0s"
    for limit, unit, big, small_unit, small in _STEPS:
        if left < limit:
            rest = left % big // small if small else 0
            return f"{left // big}{unit}" + (f"{rest}{small_unit}" if rest else "")
    return f"{left // _YEAR}y"


_DAY: Final = 86_400
_YEAR: Final = 365 * _DAY
#: Upper limit in seconds; unit and its seconds; smaller unit and its seconds.
_STEPS: Final = (
    (120, "s", 1, "", 0), (600, "m", 60, "s", 1), (10_800, "m", 60, "", 0), (28_800, "h", 3600, "m", 60),
    (172_800, "h", 3600, "", 0), (691_200, "d", _DAY, "h", 3600), (2 * _YEAR, "d", _DAY, "", 0),
    (8 * _YEAR, "y", _YEAR, "d", _DAY),
)  # fmt: skip


def epoch_of(when: Any) -> float | None:
    """Return an object's timestamp in seconds since 1970, or None if it is not a valid time."""
    if not isinstance(when, str):
        return None
    try:
        return datetime.datetime.fromisoformat(when).timestamp()
    except ValueError:
        return None


def age(when: Any, now: float) -> str:
    """Return how long ago a timestamp was."""
    then = epoch_of(when)
    return "<unknown>" if then is None else human_duration(now - then)


# -- selectors and containers ------------------------------------------------------------------------------------------


def pairs(labels: Any) -> str:
    """Format labels, or a selector that is a map of labels, as ``a=1,b=2`` sorted by key; ``<none>`` without any."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) if labels else NONE


def selector_of(found: Any) -> str:
    """Return a ``LabelSelector`` in string form: ``app=web,tier in (a,b),!old``."""
    selector = found if isinstance(found, Mapping) else {}
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    terms += [(one["key"], _term(one)) for one in selector.get("matchExpressions") or ()]
    return ",".join(text for _, text in sorted(terms, key=lambda term: term[0])) or NONE


def _term(expression: Mapping[str, Any]) -> str:
    key, values = expression["key"], ",".join(sorted(expression.get("values") or ()))
    match expression.get("operator"):
        case "Exists":
            return str(key)
        case "DoesNotExist":
            return f"!{key}"
        case "NotIn":
            return f"{key} notin ({values})"
        case _:
            return f"{key} in ({values})"


def containers_of(spec: Any) -> list[Cell]:
    """Return the names and images of a pod's containers."""
    containers = items(spec or {}, "containers")
    return [",".join(str(one.get(name, "")) for one in containers) for name in ("name", "image")]


# -- pod cells ---------------------------------------------------------------------------------------------------------
# Table cells of a pod: its status, ready containers and restarts.
#
# The status is one of kubectl's words (``Init:1/2``, ``CrashLoopBackOff``, ``Completed``). It is derived from the init
# containers first; once the pod is initialized, from the other containers, last to first.
#
# Source  kubernetes, pkg/printers/internalversion/printers.go, printPod

_ENDED: Final = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}


@dataclass(slots=True)
class _PodSummary:
    """Values collected while going through the containers."""

    state: str
    ready: int = 0
    restarts: int = 0
    #: Finish time of the latest container run that was restarted.
    ended: str = ""

    def add(self, status: Mapping[str, Any]) -> None:
        """Add the restarts of a container."""
        self.restarts += int(status.get("restartCount") or 0)
        ended = word(status, "lastState.terminated.finishedAt")
        if (epoch_of(ended) or 0) > (epoch_of(self.ended) or 0):
            self.ended = ended


def pod(found: Document, now: float) -> list[Cell]:
    """Return how many containers of a pod are ready, its status and its restarts."""
    total, count = _summarize(found)
    restarts = str(count.restarts)
    if count.restarts and count.ended:
        restarts += f" ({age(count.ended, now)} ago)"
    return [f"{count.ready}/{total}", _final_status(found, count.state), restarts]


def pod_conditions(found: Document) -> list[Document]:
    """Return the row conditions of a pod that has ended."""
    phase = word(found, "status.phase")
    if phase not in _ENDED:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _ENDED[phase]}]


def _summarize(found: Document) -> tuple[int, _PodSummary]:
    """Return the number of containers that count, and the values collected from them."""
    inits = items(found, "spec.initContainers")
    sidecars = {one.get("name") for one in inits if one.get("restartPolicy") == "Always"}
    total = len(items(found, "spec.containers")) + sum(1 for one in inits if one.get("restartPolicy") == "Always")
    conditions = items(found, "status.conditions")
    gated = any(one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated" for one in conditions)
    state = "SchedulingGated" if gated else word(found, "status.reason") or word(found, "status.phase")
    initial, of_sidecars = _PodSummary(state), _PodSummary("")
    initializing = _add_init_containers(found, len(inits), sidecars, initial, of_sidecars)
    if initializing and not _is_true(found, "Initialized"):
        return total, initial
    count = _PodSummary(initial.state, initial.ready, of_sidecars.restarts, of_sidecars.ended)
    _add_containers(found, count)
    return total, count


def _final_status(found: Document, state: str) -> str:
    if not found["metadata"].get("deletionTimestamp"):
        return state
    if word(found, "status.reason") == "NodeLost":
        return "Unknown"
    return state if word(found, "status.phase") in ENDED_PHASES else "Terminating"


def _add_init_containers(found: Document, inits: int, sidecars: set[Any], count: _PodSummary, of_sidecars: _PodSummary) -> bool:
    """Collect values from init containers, and return True while the pod is being initialized."""
    for at, status in enumerate(items(found, "status.initContainerStatuses")):
        count.add(status)
        is_sidecar = status.get("name") in sidecars
        if is_sidecar:
            of_sidecars.add(status)
        state = status.get("state") or {}
        ended = state.get("terminated")
        if ended is not None and not ended.get("exitCode"):
            continue
        if is_sidecar and status.get("started"):
            count.ready += bool(status.get("ready"))
            continue
        waits = word(state, "waiting.reason")
        if ended is not None:
            count.state = f"Init:{_exit_reason(ended)}"
        elif waits and waits != "PodInitializing":
            count.state = f"Init:{waits}"
        else:
            count.state = f"Init:{at}/{inits}"
        return True
    return False


def _add_containers(found: Document, count: _PodSummary) -> None:
    """Collect values from the regular containers."""
    runs, failure = False, ""
    for status in reversed(items(found, "status.containerStatuses")):
        count.add(status)
        state = status.get("state") or {}
        ended = state.get("terminated")
        if word(state, "waiting.reason"):
            count.state = word(state, "waiting.reason")
        elif ended is not None:
            count.state = _exit_reason(ended)
            failure = count.state if ended.get("exitCode") else failure
        elif status.get("ready") and state.get("running") is not None:
            runs = True
            count.ready += 1
    if count.state == "Completed":
        if runs and _is_true(found, "Ready"):
            count.state = "Running"
        else:
            count.state = failure or ("NotReady" if runs else count.state)


def _exit_reason(ended: Mapping[str, Any]) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode') or 0}"


def _is_true(found: Document, condition: str) -> bool:
    return is_condition_true(found.get("status") or {}, condition)


def readiness_gates(found: Document, now: float) -> Cell:
    """Return how many readiness gates of a pod are passed."""
    gates = [str(one.get("conditionType")) for one in items(found, "spec.readinessGates")]
    first = {one.get("type"): one.get("status") for one in reversed(items(found, "status.conditions"))}
    return f"{sum(first.get(gate) == 'True' for gate in gates)}/{len(gates)}" if gates else NONE


# -- workload cells ----------------------------------------------------------------------------------------------------
# Table cells of workloads, jobs and disruption budgets.
#
# Source  kubernetes, pkg/printers/internalversion/printers.go


def owner(found: Document, now: float) -> Cell:
    """Return the controller of an object: ``statefulset.apps/web``."""
    owner = next((one for one in found["metadata"].get("ownerReferences") or () if one.get("controller")), None)
    if not owner:
        return NONE
    group, slash, _ = str(owner.get("apiVersion", "")).partition("/")
    kind = str(owner.get("kind", "")).lower()
    return f"{kind}.{group}/{owner['name']}" if slash else f"{kind}/{owner['name']}"


#: Job statuses, by the first true condition; Terminating comes between the two groups.
_FINISHED: Final = ("Complete", "Failed")
_UNFINISHED: Final = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def job(found: Document, now: float) -> list[Cell]:
    """Return the status, the completions and the duration of a job."""
    started, ended = (epoch_of(at(found, f"status.{name}Time")) for name in ("start", "completion"))
    lasts = "" if started is None else human_duration((now if ended is None else ended) - started)
    return [_job_state(found), _completions(found), lasts]


def _job_state(found: Document) -> str:
    first = {one.get("type"): one.get("status") for one in reversed(items(found, "status.conditions"))}
    true = [kind for kind, status in first.items() if status == "True"]
    terminating = ["Terminating"] if found["metadata"].get("deletionTimestamp") else []
    finished, unfinished = ([one for one in group if one in true] for group in (_FINISHED, _UNFINISHED))
    return next(iter([*finished, *terminating, *unfinished]), "Running")


def _completions(found: Document) -> str:
    succeeded, at_a_time = (int(at(found, path, 0)) for path in ("status.succeeded", "spec.parallelism"))
    wanted = at(found, "spec.completions")
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    return f"{succeeded}/1 of {at_a_time}" if at_a_time > 1 else f"{succeeded}/1"


#: The field of a metric's source by its type, and how many metrics of an autoscaler are shown.
_METRICS: Final = {
    "ContainerResource": "containerResource", "External": "external", "Object": "object", "Pods": "pods",
    "Resource": "resource",
}  # fmt: skip
_METRICS_SHOWN: Final = 2


def targets(found: Document, now: float) -> Cell:
    """Return the metrics of a horizontal pod autoscaler, with their current and wanted values."""
    specs, current = items(found, "spec.metrics"), items(found, "status.currentMetrics")
    texts = [_target(spec, current[i] if i < len(current) else {}) for i, spec in enumerate(specs)]
    more = f" + {len(texts) - _METRICS_SHOWN} more..." if len(texts) > _METRICS_SHOWN else ""
    return ", ".join(texts[:_METRICS_SHOWN]) + more if texts else NONE


def _target(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    source = _METRICS.get(word(spec, "type"))
    if source is None:
        return "<unknown type>"
    names = ("averageValue", "averageUtilization") if source in {"resource", "containerResource"} else ("averageValue", "value")
    name = next((name for name in names if at(spec, f"{source}.target.{name}") is not None), names[1])
    unit = "%" if name == "averageUtilization" else ""
    now, wanted = at(status, f"{source}.current.{name}"), at(spec, f"{source}.target.{name}", "<auto>")
    text = f"{'<unknown>' if now is None else f'{now}{unit}'}/{wanted}{unit if wanted != '<auto>' else ''}"
    if source in {"resource", "containerResource"}:
        return f"{word(spec, f'{source}.name')}: {text}"
    return f"{text} (avg)" if name == "averageValue" and source != "pods" else text
