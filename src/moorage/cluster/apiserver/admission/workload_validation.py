"""Validation of jobs, cron jobs and the update strategies of workloads, beyond what scheduling reads.

Source  kubernetes, pkg/apis/apps/validation/validation.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from moorage.api.names import check_dns1123_label, check_dns1123_subdomain, check_qualified_name
from moorage.api.validation.faults import duplicate, invalid, nonnegative, one_of, required, too_long, too_many, unsupported
from moorage.cluster.apiserver.vocabulary.records import Document
from moorage.errors import Fault

# -- job validation ----------------------------------------------------------------------------------------------------
# Validation of jobs and cron jobs, beyond what scheduling reads.
#
# Source  kubernetes, pkg/apis/batch/validation/validation.go

Faults = Iterator[Fault]
#: The labels of a generated selector.
_GENERATED: Final = frozenset([
    "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name",
])  # fmt: skip
_MODES: Final = ("NonIndexed", "Indexed")
_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS: Final = ("In", "NotIn")
_STATUSES: Final = ("False", "True", "Unknown")
_REPLACEMENTS: Final = ("Failed", "TerminatingOrFailed")
_MOST_PARALLEL: Final = 100_000
_MANY_COMPLETIONS: Final = 100_000
_MOST_PARALLEL_OF_MANY: Final = 10_000
_MOST_FAILED: Final = 100_000
_MOST_FAILED_OF_MANY: Final = 10_000
_MOST_RULES: Final = 20
_MOST_CODES: Final = 255
_MOST_MANAGER: Final = 63
_MOST_INDEXES: Final = 64 * 1024
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_COUNTS: Final = (
    "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes",
)  # fmt: skip


def job_faults(job: Document) -> Faults:
    """Yield the faults of a job."""
    spec = job["spec"]
    yield from _spec_faults("spec", spec)
    yield from _selector_faults(spec)
    completions = spec.get("completions")
    if spec.get("completionMode") == "Indexed" and completions:
        name = job["metadata"].get("name") or ""
        last = f"{name}-{completions - 1}"
        if check_dns1123_label(last):
            yield invalid("metadata.name", name, f"will not able to create pod with invalid DNS label: {last}")


def _selector_faults(spec: Document) -> Faults:
    """Yield the faults of a job's selector: set without manualSelector, or not matching the labels of the pod template."""
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
        return
    wanted = selector.get("matchLabels") or {}
    if not spec.get("manualSelector") and (wanted.keys() - _GENERATED or selector.get("matchExpressions")):
        yield invalid("spec.selector", selector, "`selector` not auto-generated")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if not wanted.items() <= labels.items():
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def cron_job_limit_faults(cron_job: Document) -> Faults:
    """Yield the faults of a cron job's numbers and of its job template."""
    spec = cron_job["spec"]
    for name in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from nonnegative(f"spec.{name}", spec.get(name))
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    yield from _spec_faults("spec.jobTemplate.spec", job)
    if job.get("selector") is not None:
        yield invalid("spec.jobTemplate.spec.selector", job["selector"], "`selector` will be auto-generated")
    if job.get("manualSelector"):
        yield unsupported("spec.jobTemplate.spec.manualSelector", job["manualSelector"], ("nil", "false"))


def _spec_faults(path: str, spec: Document) -> Faults:
    for name in _COUNTS:
        yield from nonnegative(f"{path}.{name}", spec.get(name))
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    yield from _manager_faults(f"{path}.managedBy", spec.get("managedBy"))
    mode = spec.get("completionMode")
    if mode == "":
        yield unsupported(f"{path}.completionMode", mode, _MODES)
    yield from _indexed_faults(path, spec) if mode == "Indexed" else _unindexed_faults(path, spec)
    if spec.get("podFailurePolicy") is not None:
        yield from _failure_policy_faults(f"{path}.podFailurePolicy.rules", spec)
    if spec.get("successPolicy") is not None and mode == "Indexed":
        yield from _success_policy_faults(f"{path}.successPolicy.rules", spec)
    supported = ("Failed",) if spec.get("podFailurePolicy") is not None else _REPLACEMENTS
    yield from one_of(f"{path}.podReplacementPolicy", spec.get("podReplacementPolicy"), supported)
    restart = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy")
    if spec.get("podFailurePolicy") is not None and restart == "OnFailure":
        why = 'only "Never" is supported when podFailurePolicy is specified'
        yield invalid(f"{path}.template.spec.restartPolicy", restart, why)


def _manager_faults(path: str, manager: str | None) -> Faults:
    if manager is None:
        return
    domain, slash, name = manager.partition("/")
    if not manager:
        yield required(path)
    elif not slash or not domain or not name:
        yield invalid(path, manager, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        yield from (invalid(path, domain, why) for why in check_dns1123_subdomain(domain))
        if not _PATH.fullmatch(name):
            yield invalid(path, name, _PATH_TEXT)
    if len(manager) > _MOST_MANAGER:
        yield too_long(path, _MOST_MANAGER)


_PATH: Final = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_PATH_TEXT: Final = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"


def _unindexed_faults(path: str, spec: Document) -> Faults:
    for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
        if spec.get(name) is not None:
            yield invalid(f"{path}.{name}", spec[name], "requires indexed completion mode")
    if spec.get("successPolicy") is not None:
        yield invalid(f"{path}.successPolicy", spec["successPolicy"], "requires indexed completion mode")


def _indexed_faults(path: str, spec: Document) -> Faults:
    parallelism, completions, failed = (spec.get(name) for name in ("parallelism", "completions", "maxFailedIndexes"))
    if parallelism is not None and parallelism > _MOST_PARALLEL:
        why = f"must be less than or equal to {_MOST_PARALLEL} when completion mode is Indexed"
        yield invalid(f"{path}.parallelism", parallelism, why)
    if completions is not None and failed is not None and failed > completions:
        yield invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions")
    if failed is not None and failed > _MOST_FAILED:
        yield invalid(f"{path}.maxFailedIndexes", failed, f"must be less than or equal to {_MOST_FAILED}")
    if completions is not None and completions > _MANY_COMPLETIONS and spec.get("backoffLimitPerIndex") is not None:
        yield from _faults_of_many(path, parallelism, failed)


def _faults_of_many(path: str, parallelism: int | None, failed: int | None) -> Faults:
    most = f"when completions are above {_MANY_COMPLETIONS} and used with backoff limit per index"
    if failed is None:
        yield required(f"{path}.maxFailedIndexes", f"must be specified when completions is above {_MANY_COMPLETIONS}")
    if parallelism is not None and parallelism > _MOST_PARALLEL_OF_MANY:
        yield invalid(f"{path}.parallelism", parallelism, f"must be less than or equal to {_MOST_PARALLEL_OF_MANY} {most}")
    if failed is not None and failed > _MOST_FAILED_OF_MANY:
        yield invalid(f"{path}.maxFailedIndexes", failed, f"must be less than or equal to {_MOST_FAILED_OF_MANY} {most}")


# -- policies -----------------------------------------------------------------------------------------------------------


def _failure_policy_faults(path: str, spec: Document) -> Faults:
    rules = spec["podFailurePolicy"].get("rules") or ()
    if len(rules) > _MOST_RULES:
        yield too_many(path, len(rules), _MOST_RULES)
    pod = (spec.get("template") or {}).get("spec") or {}
    names = {one.get("name") for part in ("containers", "initContainers") for one in pod.get(part) or ()}
    for i, rule in enumerate(rules):
        yield from _failure_rule_faults(f"{path}[{i}]", rule, names, per_index=spec.get("backoffLimitPerIndex") is not None)


def _failure_rule_faults(path: str, rule: Document, names: set[Any], *, per_index: bool) -> Faults:
    action, codes, conditions = rule.get("action") or "", rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    if not action:
        shown = " ".join(f'"{one}"' for one in _ACTIONS)
        yield required(f"{path}.action", f"valid values: [{shown}]")
    elif action == "FailIndex" and not per_index:
        yield invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set")
    elif action not in _ACTIONS:
        yield unsupported(f"{path}.action", action, _ACTIONS)
    if codes is not None:
        yield from _exit_code_faults(f"{path}.onExitCodes", codes, names)
    if len(conditions) > _MOST_RULES:
        yield too_many(f"{path}.onPodConditions", len(conditions), _MOST_RULES)
    for k, condition in enumerate(conditions):
        at = f"{path}.onPodConditions[{k}]"
        yield from (invalid(f"{at}.type", condition.get("type") or "", why) for why in _type_faults(condition))
        yield from one_of(f"{at}.status", condition.get("status", "True"), _STATUSES)
    if codes is not None and conditions:
        yield Fault("Invalid value", path, "specifying both OnExitCodes and OnPodConditions is not supported")
    if codes is None and not conditions:
        yield Fault("Invalid value", path, "specifying one of OnExitCodes and OnPodConditions is required")


def _type_faults(condition: Document) -> list[str]:
    return check_qualified_name(condition.get("type") or "")


def _exit_code_faults(path: str, codes: Document, names: set[Any]) -> Faults:
    operator, values = codes.get("operator") or "", codes.get("values") or []
    if not operator:
        yield required(f"{path}.operator", 'valid values: ["In" "NotIn"]')
    else:
        yield from one_of(f"{path}.operator", operator, _OPERATORS)
    if codes.get("containerName") is not None and codes["containerName"] not in names:
        why = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{path}.containerName", codes["containerName"], why)
    if not values:
        yield invalid(f"{path}.values", values, "at least one value is required")
    elif len(values) > _MOST_CODES:
        yield too_many(f"{path}.values", len(values), _MOST_CODES)
    seen: set[int] = set()
    for k, value in enumerate(values):
        if operator == "In" and value == 0:
            yield invalid(f"{path}.values[{k}]", value, "must not be 0 for the In operator")
        if value in seen:
            yield duplicate(f"{path}.values[{k}]", value)
        seen.add(value)
    if values != sorted(values):
        yield invalid(f"{path}.values", values, "must be ordered")


def _success_policy_faults(path: str, spec: Document) -> Faults:
    rules = spec["successPolicy"].get("rules") or ()
    if not rules:
        yield required(path, "at least one rules must be specified when the successPolicy is specified")
    if len(rules) > _MOST_RULES:
        yield too_many(path, len(rules), _MOST_RULES)
    for i, rule in enumerate(rules):
        yield from _success_rule_faults(f"{path}[{i}]", rule, spec.get("completions") or 0)


def _success_rule_faults(path: str, rule: Document, completions: int) -> Faults:
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        yield required(path, "at least one of succeededCount or succeededIndexes must be specified")
    total = 0
    if indexes is not None:
        if len(indexes) > _MOST_INDEXES:
            yield too_long(f"{path}.succeededIndexes", _MOST_INDEXES)
        total, why = _parsed_indexes(indexes, completions)
        if why:
            yield invalid(f"{path}.succeededIndexes", indexes, f"error parsing succeededIndexes: {why}")
    if count is None:
        return
    at = f"{path}.succeededCount"
    yield from nonnegative(at, count)
    if count > completions:
        yield invalid(at, count, f"must be less than or equal to {completions} (the number of specified completions)")
    if indexes is not None and count > total:
        why = f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        yield invalid(at, count, why)


def _parsed_indexes(text: str, completions: int) -> tuple[int, str]:
    """Return how many indexes a text such as ``1,3-5`` names, or 0 and what is wrong with it."""
    total, last = 0, -1
    for part in text.split(",") if text else ():
        ends = part.split("-")
        if len(ends) > 2:
            why = "violates the requirement that an index interval can have at most two parts separated by '-'"
            return 0, f'the fragment "{part}" {why}'
        for end in ends:
            if not _NUMBER.fullmatch(end):
                return 0, f'cannot convert string to integer for index: "{end}"'
            if int(end) >= completions:
                return 0, f'too large index: "{end}"'
        first, final = int(ends[0]), int(ends[-1])
        if len(ends) == 2 and first >= final:
            return 0, f"non-increasing order, previous: {first}, current: {final}"
        if first <= last:
            return 0, f"non-increasing order, previous: {last}, current: {first}"
        total += final - first + 1
        last = final
    return total, ""


# -- rollout validation ------------------------------------------------------------------------------------------------

_PERCENT: Final = re.compile("[0-9]+%")
_NOT_A_PERCENTAGE: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
_NEGATIVE: Final = "must be greater than or equal to 0"


def rollout_faults(workload: Document) -> Iterator[Fault]:
    """Yield the faults in the strategy, wait times and history limit of a defaulted workload."""
    kind, spec = workload.get("kind"), workload.get("spec") or {}
    if (rule := _STRATEGIES.get(str(kind))) is not None:
        yield from rule(spec)
    names = ("minReadySeconds",) if kind == "StatefulSet" else ("minReadySeconds", "revisionHistoryLimit")
    for name in names:
        if (spec.get(name) or 0) < 0:
            yield Fault("Invalid value", f"spec.{name}", _NEGATIVE, spec[name])
    deadline = spec.get("progressDeadlineSeconds")
    if kind == "Deployment" and deadline is not None:
        if deadline < 0:
            yield Fault("Invalid value", "spec.progressDeadlineSeconds", _NEGATIVE, deadline)
        if deadline <= (spec.get("minReadySeconds") or 0):
            yield Fault("Invalid value", "spec.progressDeadlineSeconds", "must be greater than minReadySeconds", deadline)


def _deployment(spec: Document) -> Iterator[Fault]:
    strategy, path = spec.get("strategy") or {}, "spec.strategy"
    rolling = strategy.get("rollingUpdate")
    match strategy.get("type"):
        case "Recreate":
            if rolling is not None:
                why = "may not be specified when strategy `type` is 'Recreate'"
                yield Fault("Forbidden", f"{path}.rollingUpdate", why)
        case "RollingUpdate":
            unavailable, surge = (strategy["rollingUpdate"].get(name) for name in ("maxUnavailable", "maxSurge"))
            yield from _amount(f"{path}.rollingUpdate.maxUnavailable", unavailable)
            yield from _amount(f"{path}.rollingUpdate.maxSurge", surge)
            if _number(unavailable) == _number(surge) == 0:
                why = "may not be 0 when `maxSurge` is 0"
                yield Fault("Invalid value", f"{path}.rollingUpdate.maxUnavailable", why, unavailable)
            yield from _at_most_all(f"{path}.rollingUpdate.maxUnavailable", unavailable)
        case _:
            yield from _no_type(path, strategy, ("Recreate", "RollingUpdate"))


def _daemon_set(spec: Document) -> Iterator[Fault]:
    strategy, path = spec.get("updateStrategy") or {}, "spec.updateStrategy"
    if strategy.get("type") == "OnDelete":
        return
    if strategy.get("type") != "RollingUpdate":
        yield from _no_type(path, strategy, ("RollingUpdate", "OnDelete"))
        return
    rolling, path = strategy["rollingUpdate"], f"{path}.rollingUpdate"
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    yield from _amount(f"{path}.maxUnavailable", unavailable)
    yield from _amount(f"{path}.maxSurge", surge)
    yield from _at_most_all(f"{path}.maxUnavailable", unavailable)
    yield from _at_most_all(f"{path}.maxSurge", surge)
    if _number(unavailable) and _number(surge):
        yield Fault("Invalid value", f"{path}.maxSurge", "may not be set when maxUnavailable is non-zero", surge)
    elif not _number(unavailable) and not _number(surge):
        yield Fault("Required value", f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def _stateful_set(spec: Document) -> Iterator[Fault]:
    strategy, path = spec.get("updateStrategy") or {}, "spec.updateStrategy"
    rolling = strategy.get("rollingUpdate")
    match strategy.get("type"):
        case "OnDelete":
            if rolling is not None:
                shown = {"Partition": rolling.get("partition", 0), "MaxUnavailable": rolling.get("maxUnavailable")}
                why = "only allowed for updateStrategy 'RollingUpdate'"
                yield Fault("Invalid value", f"{path}.rollingUpdate", why, shown)
        case "RollingUpdate":
            yield from _by_partition(f"{path}.rollingUpdate", rolling or {})
        case kind:
            shown = {"Type": kind, "RollingUpdate": None}
            yield Fault("Invalid value", path, "must be 'RollingUpdate' or 'OnDelete'", shown)


def _by_partition(path: str, rolling: Document) -> Iterator[Fault]:
    partition, unavailable = rolling.get("partition") or 0, rolling.get("maxUnavailable")
    if partition < 0:
        yield Fault("Invalid value", f"{path}.partition", _NEGATIVE, partition)
    if unavailable is not None:
        yield from _amount(f"{path}.maxUnavailable", unavailable)
        if _number(unavailable) == 0:
            yield Fault("Invalid value", f"{path}.maxUnavailable", "cannot be 0", unavailable)
        yield from _at_most_all(f"{path}.maxUnavailable", unavailable)


_STRATEGIES: Final[dict[str, Callable[[Document], Iterator[Fault]]]] = {
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
}


def _no_type(path: str, strategy: Document, supported: tuple[str, ...]) -> Iterator[Fault]:
    rolling = strategy.get("rollingUpdate")
    held = (
        None
        if rolling is None
        else {"MaxUnavailable": rolling.get("maxUnavailable", 0), "MaxSurge": rolling.get("maxSurge", 0)}
    )
    names = ", ".join(f'"{name}"' for name in supported)
    shown = {"Type": strategy.get("type", ""), "RollingUpdate": held}
    yield Fault("Unsupported value", path, f"supported values: {names}", shown)


def _amount(path: str, value: Any) -> Iterator[Fault]:
    """Yield the fault of a value that is neither a number of pods nor a percentage."""
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            yield Fault("Invalid value", path, _NOT_A_PERCENTAGE, value)
    elif (value or 0) < 0:
        yield Fault("Invalid value", path, _NEGATIVE, value)


def _at_most_all(path: str, value: Any) -> Iterator[Fault]:
    if isinstance(value, str) and _PERCENT.fullmatch(value) and _number(value) > 100:
        yield Fault("Invalid value", path, "must not be greater than 100%", value)


def _number(value: Any) -> int:
    """Return the number in a value; 0 for a string that is not a percentage."""
    if isinstance(value, str):
        return int(value[:-1]) if _PERCENT.fullmatch(value) else 0
    return int(value or 0)
