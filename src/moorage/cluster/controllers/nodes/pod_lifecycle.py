"""The life of a pod on a simulated node: when it starts, how long it runs, how it ends, and its status at each moment.

No container runs. Annotations of the pod declare what it does:

    moorage.dev/start-seconds   how long it takes to start, after it is bound; default 0
    moorage.dev/ready-seconds   how long after its start it is ready; by default, when its readiness probes begin
    moorage.dev/run-seconds     how long its containers run before they exit; default unlimited, a few seconds for the pods of
                                jobs and for pods that are Helm hooks, such as those of ``helm test``
    moorage.dev/exit-code       the exit code of its containers; default 0
    moorage.dev/stop-seconds    how long they take to stop, at most their grace period; default a moment in ``moorage up``

Without run-seconds and exit-code, the command of a pod's only container decides, if it only sleeps and exits (see
``container_commands``). A ``preStop`` hook that sleeps is respected; other hooks need a container.

Everything follows from the pod's status, so a pod's life continues after a restart of the program.

Source  kubernetes, pkg/kubelet: kubelet_pods.go, status/generate.go, kuberuntime/kuberuntime_manager.go (backoff)
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from moorage.api.core import ENDED_PHASES
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document

# Predict the outcome of simple container commands: ``sleep 30``, ``false``, ``sh -c 'sleep 5; exit 3'``.
#
# Simulated nodes run no containers, yet many commands in test clusters only wait and exit. A command is understood if every
# statement in it sleeps, prints, exits or does nothing. Anything else (a variable, a pipe, a branch, another program) makes
# the whole command unknown: no prediction is better than a wrong one.

_SHELLS: Final = frozenset({"sh", "bash", "ash", "dash"})
#: Images without an entry point, whose arguments are the command: ``kubectl run … -- sleep 30``.
_COMMANDLESS: Final = frozenset(
    ["alpine", "almalinux", "amazonlinux", "archlinux", "busybox", "centos", "debian", "fedora", "rockylinux", "ubuntu"]
)
_UNITS_S: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhd]?)")
#: Shell syntax that is not understood.
_MORE: Final = re.compile(r"[;&|<>()]+|.*(?:`|\$\().*", re.DOTALL)
_FOREVER_S: Final = float("inf")


class CommandOutcome(NamedTuple):
    """How long a container runs, None for unlimited, and its exit code."""

    run_s: float | None
    exit_code: int


class _Statement(NamedTuple):
    lasts_s: float
    code: int
    ends: bool = False


def outcome_of(container: Mapping[str, Any]) -> CommandOutcome | None:
    """Return the predicted outcome of a container, None if its image or command gives no prediction."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not container.get("command"):
        image = str(container.get("image", "")).rpartition("/")[2].partition("@")[0].partition(":")[0]
        if image == "pause" and not words:
            return CommandOutcome(None, 0)
        if image not in _COMMANDLESS:
            return None
    is_script = len(words) >= 3 and _program(words[0]) in _SHELLS and words[1] == "-c"
    lasted_s, code = 0.0, 0
    for joint, statement in _script(words[2]) if is_script else [("", words)]:
        one = _statement(statement)
        if one is None:
            return None
        if joint == "&&" and code:
            continue
        lasted_s, code = lasted_s + one.lasts_s, one.code
        if lasted_s == _FOREVER_S:
            return CommandOutcome(None, 0)
        if one.ends:
            break
    return CommandOutcome(lasted_s, code)


def _program(path: str) -> str:
    return path.rpartition("/")[2] if path.startswith(("/bin/", "/usr/bin/")) else path


def _script(text: str) -> list[tuple[str, list[str]]]:
    """Return the statements of a script, each with the operator before it; a statement without words is not understood."""
    lexer = shlex.shlex(text.strip().replace("\\\n", " ").replace("\n", ";"), posix=True, punctuation_chars=";&|<>()")
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        return [("", [])]  # an unterminated quote
    made: list[tuple[str, list[str]]] = [("", [])]
    for word in words:
        if word == "&&" or not word.strip(";"):
            made.append((word, []))
        else:
            made[-1][1].append(word)
    return [one for one in made if one[1]] or [("", [])]


def _statement(words: Sequence[str]) -> _Statement | None:
    if not words or any(_MORE.fullmatch(word) for word in words):
        return None
    match _program(words[0]), list(words[1:]):
        case (("true" | ":" | "echo" | "printf"), _):
            return _Statement(0.0, 0)
        case "false", _:
            return _Statement(0.0, 1)
        case "exit", [] | [_] as given:
            code = given[0] if given else "0"
            return _Statement(0.0, int(code), True) if code.isdecimal() and len(code) < 4 and int(code) < 256 else None
        case "sleep", [_, *_] as spans:
            lasts_s = [_span_s(one) for one in spans]
            return _Statement(sum(one for one in lasts_s if one is not None), 0) if None not in lasts_s else None
    return None


def _span_s(text: str) -> float | None:
    if text in {"inf", "infinity"}:
        return _FOREVER_S
    found = _SPAN.fullmatch(text)
    return float(found[1]) * _UNITS_S[found[2]] if found else None


_PREFIX: Final = "moorage.dev/"
#: The annotation of pods that Helm creates and waits for: tests, and what runs before or after an installation.
_HELM_HOOK: Final = "helm.sh/hook"
#: Delays between two starts of a container that exits repeatedly, in seconds.
_FIRST_WAIT_S: Final = 10.0
_LONGEST_WAIT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Life:
    """The declared behaviour of a pod, in seconds. ``run_s`` None: it runs until it is stopped."""

    start_s: float = 0.0
    ready_s: float = 0.0
    run_s: float | None = None
    exit_code: int = 0
    stop_s: float = 0.0


def life_of(pod: Document, job_s: float, stop_s: float = 0.0) -> Life:
    """Return the declared behaviour of a pod, ignoring invalid annotations. ``job_s``: how long pods of jobs and hooks run;
    ``stop_s``: how long pods take to stop that do not say it.
    """
    declared = k8s.annotations_of(pod)
    ready_s, run_s, code = _number(declared, "ready-seconds"), _number(declared, "run-seconds"), _number(declared, "exit-code")
    usual = _default_outcome(pod, job_s) if run_s is None and code is None else CommandOutcome(_default_run_s(pod, job_s), 0)
    return Life(
        _number(declared, "start-seconds") or 0.0,
        _probed_after(pod) if ready_s is None else ready_s,
        usual.run_s if run_s is None else run_s,
        int(code) if code is not None and code < 256 else usual.exit_code,
        max(stop_s if (stops_s := _number(declared, "stop-seconds")) is None else stops_s, _hook_sleep_s(pod)),
    )


def _default_outcome(pod: Document, job_s: float) -> CommandOutcome:
    """Return the outcome of a pod without run-seconds and exit-code: that of its command, or the default."""
    containers = k8s.spec_of(pod).get("containers") or []
    predicted = outcome_of(containers[0]) if len(containers) == 1 else None
    return predicted or CommandOutcome(_default_run_s(pod, job_s), 0)


def _default_run_s(pod: Document, job_s: float) -> float | None:
    """Return the default run time in seconds: ``job_s`` for pods of jobs and Helm hooks, None (unlimited) for all others."""
    owner = k8s.controller_of(pod)
    is_hook = _HELM_HOOK in k8s.annotations_of(pod) and k8s.spec_of(pod).get("restartPolicy") in {"Never", "OnFailure"}
    return job_s if is_hook or (owner is not None and owner["kind"] == "Job") else None


def _probed_after(pod: Document) -> float:
    """Return when the last readiness probe of a pod begins, in seconds after the start of its containers."""
    probes = [one.get("readinessProbe") or {} for one in k8s.spec_of(pod).get("containers") or ()]
    return max((float(probe.get("initialDelaySeconds") or 0) for probe in probes), default=0.0)


def _hook_sleep_s(pod: Document) -> float:
    """Return how long the longest preStop hook of kind ``sleep`` takes, in seconds. Other hooks would need a container."""
    hooks = [(one.get("lifecycle") or {}).get("preStop") or {} for one in k8s.spec_of(pod).get("containers") or ()]
    return max((float((hook.get("sleep") or {}).get("seconds") or 0) for hook in hooks), default=0.0)


def _number(declared: Mapping[str, str], name: str) -> float | None:
    try:
        value = float(declared.get(_PREFIX + name, ""))
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None


# -- times --------------------------------------------------------------------------------------------------------------


def starts_at(pod: Document, life: Life) -> float:
    """Return when a bound pod starts."""
    bound = k8s.condition_of(pod, "PodScheduled") or {}
    since = k8s.seconds(bound.get("lastTransitionTime")) or k8s.seconds(pod["metadata"].get("creationTimestamp"))
    return since + life.start_s


def ends_at(pod: Document, life: Life) -> float:
    """Return when a pod that is being deleted stops."""
    metadata = pod["metadata"]
    last = k8s.seconds(metadata.get("deletionTimestamp"))
    asked = last - int(metadata.get("deletionGracePeriodSeconds") or 0)
    return min(last, asked + life.stop_s) if k8s.status_of(pod).get("startTime") else asked


def _wait_s(restarts: int) -> float:
    return min(_FIRST_WAIT_S * 2.0 ** min(restarts, 10), _LONGEST_WAIT_S)


# -- status -------------------------------------------------------------------------------------------------------------


def next_status(pod: Document, life: Life, host_ip: str, pod_ip: str, now: float) -> tuple[Document | None, float | None]:
    """Return the new status of a bound pod, None for no change; and when to check again, None for never."""
    if k8s.phase_of(pod) in ENDED_PHASES:
        return None, None
    if not k8s.status_of(pod).get("startTime"):
        at = starts_at(pod, life)
        return (None, at) if now < at else (_started(pod, life, host_ip, pod_ip, now), now)
    over = _overdue(pod, now)
    if over is not None:
        return over, None
    if (debugged := _with_ephemeral_containers(pod, now)) is not None:
        return debugged, now
    if (changed := _with_new_spec(pod, now)) is not None:
        return changed, now
    held: dict[str, Any] = (k8s.status_of(pod).get("containerStatuses") or [{}])[0]
    if "running" in held.get("state", {}):
        return _while_running(pod, held, life, now)
    ended = (held.get("lastState") or {}).get("terminated") or {}
    again = k8s.seconds(ended.get("finishedAt")) + _wait_s(int(held.get("restartCount") or 0))
    if now >= again:
        restarted = _with_containers(pod, _running(pod, now, int(held.get("restartCount") or 0) + 1, life.ready_s <= 0), now)
        return restarted, now
    return None, again


def _with_ephemeral_containers(pod: Document, now: float) -> Document | None:
    """Return the status of a pod with its new ephemeral containers running; None if there are no new ones."""
    held = k8s.status_of(pod).get("ephemeralContainerStatuses") or []
    known = {one["name"] for one in held}
    state = {"running": {"startedAt": k8s.stamp(now)}}
    new = [one for one in k8s.spec_of(pod).get("ephemeralContainers") or () if one["name"] not in known]
    fresh = [_container(pod, one, 0, state=state, lastState={}, ready=False) for one in new]
    return {**k8s.status_of(pod), "ephemeralContainerStatuses": [*held, *fresh]} if fresh else None


def _while_running(pod: Document, held: dict[str, Any], life: Life, now: float) -> tuple[Document | None, float | None]:
    began = k8s.seconds(held["state"]["running"].get("startedAt"))
    if life.run_s is not None and now >= began + life.run_s:
        return _ended(pod, life, now), now
    due = [] if life.run_s is None else [began + life.run_s]
    if (limit := k8s.spec_of(pod).get("activeDeadlineSeconds")) is not None:
        due.append(k8s.seconds(k8s.status_of(pod).get("startTime")) + int(limit))
    if (k8s.condition_of(pod, "Ready") or {}).get("status") != "True":
        # It is not ready yet, or was marked as not ready with its lost node.
        if now >= began + life.ready_s:
            return _with_containers(pod, _running(pod, began, int(held.get("restartCount") or 0), True), now), now
        due.append(began + life.ready_s)
    return None, min(due, default=None)


def _overdue(pod: Document, now: float) -> Document | None:
    """Return the status of a pod that exceeded its deadline; None otherwise."""
    limit = k8s.spec_of(pod).get("activeDeadlineSeconds")
    if limit is None or now < k8s.seconds(k8s.status_of(pod).get("startTime")) + int(limit):
        return None
    why = "Pod was active on the node longer than the specified deadline"
    return {**_all_over(pod, 137, now), "phase": "Failed", "reason": "DeadlineExceeded", "message": why}


def _started(pod: Document, life: Life, host_ip: str, pod_ip: str, now: float) -> Document:
    address = host_ip if k8s.spec_of(pod).get("hostNetwork") else pod_ip
    addresses = {"hostIP": host_ip, "hostIPs": [{"ip": host_ip}], "podIP": address, "podIPs": [{"ip": address}]}
    status = {**k8s.status_of(pod), **addresses, "startTime": k8s.stamp(now)}
    inits = k8s.spec_of(pod).get("initContainers") or ()
    if inits:
        status["initContainerStatuses"] = [_init(one, now) for one in inits]
    made = _with_containers({**pod, "status": status}, _running(pod, now, 0, life.ready_s <= 0), now)
    return {**made, "phase": "Running"}


def stopped(pod: Document, now: float) -> Document:
    """Return the status of a pod that was stopped."""
    return {**_all_over(pod, 143, now), "phase": "Failed"}


def _ended(pod: Document, life: Life, now: float) -> Document:
    """Return the status of a pod whose containers exited by themselves."""
    policy = k8s.spec_of(pod).get("restartPolicy", "Always")
    if policy == "Always" or (policy == "OnFailure" and life.exit_code):
        return _with_containers(pod, _waiting(pod, life.exit_code, now), now)
    status = _all_over(pod, life.exit_code, now, over=True)
    return {**status, "phase": "Failed" if life.exit_code else "Succeeded"}


def _all_over(pod: Document, code: int, now: float, *, over: bool = False) -> Document:
    """Return the pod's status once nothing runs: its containers exited with ``code``, ephemeral ones were killed."""
    status = _with_containers(pod, _terminated(pod, code, now), now, over=over)
    if ephemeral := status.get("ephemeralContainerStatuses"):
        ended = [{**one, "state": {"terminated": _end_of(pod, one, 137, now)}} for one in ephemeral]
        status["ephemeralContainerStatuses"] = ended
    return status


def _with_containers(pod: Document, containers: list[dict[str, Any]], now: float, *, over: bool = False) -> Document:
    """Return the pod's status with these containers and the resulting conditions."""
    status = k8s.status_of(pod)
    ready = all(one["ready"] for one in containers)
    names = " ".join(one["name"] for one in containers if not one["ready"])
    unready = {"reason": "ContainersNotReady", "message": f"containers with unready status: [{names}]"}
    why = {} if ready else {"reason": "PodCompleted"} if over else unready
    conditions = status.get("conditions") or ()
    conditions = k8s.with_condition(conditions, "PodReadyToStartContainers", "False" if over else "True", now)
    conditions = k8s.with_condition(conditions, "Initialized", "True", now, "PodCompleted" if over else "")
    for name in ("Ready", "ContainersReady"):
        conditions = k8s.with_condition(conditions, name, "True" if ready else "False", now, **why)
    return {**status, **_observed(pod), "conditions": conditions, "containerStatuses": containers}


def _observed(pod: Document) -> Document:
    """Return the generation of the pod that a status of now is about."""
    generation = pod["metadata"].get("generation")
    return {"observedGeneration": generation} if generation else {}


def _with_new_spec(pod: Document, now: float) -> Document | None:
    """Return the status of a pod whose spec has changed, with containers that got another image started again; else None."""
    status = k8s.status_of(pod)
    if not 0 < status.get("observedGeneration", 0) < pod["metadata"].get("generation", 0):
        return None
    images = {one["name"]: str(one.get("image", "")) for one in k8s.spec_of(pod).get("containers") or ()}
    specs = {one["name"]: one for one in k8s.spec_of(pod).get("containers") or ()}
    containers = []
    for held in status.get("containerStatuses") or ():
        if "running" in (held.get("state") or {}) and images.get(held["name"], held["image"]) != held["image"]:
            count = int(held.get("restartCount") or 0) + 1
            state, last = {"running": {"startedAt": k8s.stamp(now)}}, {"terminated": _end_of(pod, held, 143, now)}
            held = _container(  # noqa: PLW2901
                pod, specs[held["name"]], count, state=state, lastState=last, ready=held["ready"], started=True
            )
        containers.append(held)
    return {**status, **_observed(pod), "containerStatuses": containers}


# -- containers ---------------------------------------------------------------------------------------------------------


def _container_id(pod: Document, name: str, restarts: int) -> str:
    return "moorage://" + hashlib.sha256(f"{k8s.uid_of(pod)}/{name}/{restarts}".encode()).hexdigest()


def _container(pod: Document, spec: dict[str, Any], restarts: int, **more: Any) -> dict[str, Any]:
    image = str(spec.get("image", ""))
    digest, own_id = hashlib.sha256(image.encode()).hexdigest(), _container_id(pod, spec["name"], restarts)
    head = {"name": spec["name"], "image": image, "imageID": f"moorage.dev/pretended@sha256:{digest}"}
    return {**head, "containerID": own_id, "restartCount": restarts, **more}


def _running(pod: Document, since: float, restarts: int, ready: bool) -> list[dict[str, Any]]:
    """Return the statuses of running containers; their last state is preserved."""
    last = {one["name"]: one for one in k8s.status_of(pod).get("containerStatuses") or ()}

    def one(spec: dict[str, Any]) -> dict[str, Any]:
        state = {"running": {"startedAt": k8s.stamp(since)}}
        before = last.get(spec["name"], {}).get("lastState") or {}
        return _container(pod, spec, restarts, state=state, lastState=before, ready=ready, started=True)

    return [one(spec) for spec in k8s.spec_of(pod).get("containers") or ()]


def _end_of(pod: Document, held: Mapping[str, Any], code: int, now: float) -> dict[str, Any]:
    began = ((held.get("state") or {}).get("running") or {}).get("startedAt") or k8s.stamp(now)
    times = {"startedAt": began, "finishedAt": k8s.stamp(now)}
    own_id = held.get("containerID", _container_id(pod, "", 0))
    return {"exitCode": code, "reason": "Error" if code else "Completed", **times, "containerID": own_id}


def _terminated(pod: Document, code: int, now: float) -> list[dict[str, Any]]:
    held = {one["name"]: one for one in k8s.status_of(pod).get("containerStatuses") or ()}

    def one(spec: dict[str, Any]) -> dict[str, Any]:
        before = held.get(spec["name"], {})
        state = {"terminated": _end_of(pod, before, code, now)}
        restarts = int(before.get("restartCount") or 0)
        return _container(pod, spec, restarts, state=state, lastState={}, ready=False, started=False)

    return [one(spec) for spec in k8s.spec_of(pod).get("containers") or ()]


def _waiting(pod: Document, code: int, now: float) -> list[dict[str, Any]]:
    """Return the statuses of containers that exited and wait for a restart."""

    def one(ended: dict[str, Any]) -> dict[str, Any]:
        wait_s = int(_wait_s(ended["restartCount"]))
        text = f"back-off {wait_s}s restarting failed container={ended['name']} pod={pod['metadata']['name']}"
        waiting = {"reason": "CrashLoopBackOff", "message": text}
        return {**ended, "state": {"waiting": waiting}, "lastState": ended["state"]}

    return [one(ended) for ended in _terminated(pod, code, now)]


def _init(spec: dict[str, Any], now: float) -> dict[str, Any]:
    """Return the status of an init container: completed at once, unless it is a sidecar."""
    moment = k8s.stamp(now)
    if spec.get("restartPolicy") == "Always":
        state: dict[str, Any] = {"running": {"startedAt": moment}}
    else:
        state = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": moment, "finishedAt": moment}}
    shown = {"name": spec["name"], "image": str(spec.get("image", "")), "imageID": "", "restartCount": 0, "ready": True}
    return {**shown, "state": state, "lastState": {}}
