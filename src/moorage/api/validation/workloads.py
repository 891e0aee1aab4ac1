"""Workloads, disruption budgets and priority classes.

Source  kubernetes, pkg/apis/apps/validation, pkg/apis/batch/validation, pkg/apis/policy/validation,
        pkg/apis/scheduling/validation
"""

from __future__ import annotations

import re
from typing import Final

from moorage.api.admission import SYSTEM_PRIORITY_CLASSES
from moorage.api.core import PodTemplate, PodTemplateSpec, ReplicationController
from moorage.api.meta import LabelSelector
from moorage.api.selectors import SelectorError, compile_label_selector, selector_from_map
from moorage.api.validation.faults import (
    Faults,
    forbidden,
    int32,
    invalid,
    label_selector,
    nonnegative,
    object_meta,
    one_of,
    required,
    unsupported,
)
from moorage.api.validation.pods import pod_template_faults
from moorage.api.validation.rbac import check_path_segment
from moorage.api.workloads import (
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    JobSpec,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    StatefulSet,
)

_PERCENT = re.compile("[0-9]+%")
_HIGHEST_PRIORITY: Final = 1_000_000_000
#: A cron job's jobs have its name with eleven more characters.
_MAX_CRON_NAME: Final = 52


def deployment_faults(deployment: Deployment) -> Faults:
    """Yield the faults of a deployment."""
    spec = deployment.spec
    yield from object_meta(deployment.metadata, True)
    yield from nonnegative("spec.replicas", spec.replicas)
    yield from _selects(spec.selector, spec.template, "deployment")


def replica_set_faults(replica_set: ReplicaSet) -> Faults:
    """Yield the faults of a replica set. As in the API server, the texts say "deployment"."""
    spec = replica_set.spec
    yield from object_meta(replica_set.metadata, True)
    yield from nonnegative("spec.replicas", spec.replicas)
    yield from _selects(spec.selector, spec.template, "deployment")


def stateful_set_faults(stateful_set: StatefulSet) -> Faults:
    """Yield the faults of a stateful set; its claim templates are decoded when its pods are created."""
    spec = stateful_set.spec
    yield from object_meta(stateful_set.metadata, True)
    if spec.pod_management_policy not in {"OrderedReady", "Parallel"}:
        yield invalid("spec.podManagementPolicy", spec.pod_management_policy, "must be 'OrderedReady' or 'Parallel'")
    yield from nonnegative("spec.replicas", spec.replicas)
    if spec.ordinals is not None:
        yield from nonnegative("spec.ordinals.start", spec.ordinals.start)
    yield from _selects(spec.selector, spec.template, "statefulset")


def daemon_set_faults(daemon_set: DaemonSet) -> Faults:
    """Yield the faults of a daemon set."""
    yield from object_meta(daemon_set.metadata, True)
    yield from _selects(daemon_set.spec.selector, daemon_set.spec.template, "daemonset")


def _selects(selector: LabelSelector | None, template: PodTemplateSpec, kind: str) -> Faults:
    """Yield the faults of a selector, a template, and their combination."""
    if selector is None:
        yield required("spec.selector")
    elif not selector.match_labels and not selector.match_expressions:
        yield invalid("spec.selector", selector, f"empty selector is invalid for {kind}")
    else:
        yield from label_selector("spec.selector", selector)
        yield from _mismatch(selector, template)
    yield from pod_template_faults("spec.template", template)
    if template.spec.restart_policy not in {"", "Always"}:
        yield unsupported("spec.template.spec.restartPolicy", template.spec.restart_policy, ("Always",))


def _mismatch(selector: LabelSelector, template: PodTemplateSpec) -> Faults:
    try:
        matches = compile_label_selector(selector).matches(template.metadata.labels)
    except SelectorError:
        return  # already reported with its path
    if not matches:
        yield invalid("spec.template.metadata.labels", template.metadata.labels, "`selector` does not match template `labels`")


def pod_template_object_faults(held: PodTemplate) -> Faults:
    """Yield the faults of a PodTemplate object."""
    yield from object_meta(held.metadata, True)
    yield from pod_template_faults("template", held.template)


def replication_controller_faults(controller: ReplicationController) -> Faults:
    """Yield the faults of a replication controller."""
    spec = controller.spec
    yield from object_meta(controller.metadata, True)
    yield from nonnegative("spec.replicas", spec.replicas)
    if not spec.selector:
        yield required("spec.selector")
    if spec.template is None:
        yield required("spec.template")
        return
    labels = spec.template.metadata.labels
    if not selector_from_map(spec.selector).matches(labels):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from pod_template_faults("spec.template", spec.template)
    if spec.template.spec.restart_policy not in {"", "Always"}:
        yield unsupported("spec.template.spec.restartPolicy", spec.template.spec.restart_policy, ("Always",))


# -- jobs ---------------------------------------------------------------------------------------------------------------


def job_faults(job: Job) -> Faults:
    """Yield the faults of a job."""
    yield from object_meta(job.metadata, True)
    if len(job.metadata.name) > 63:
        # The name becomes a label of the job's pods.
        yield invalid("metadata.name", job.metadata.name, "must be no more than 63 characters")
    yield from _job_spec("spec", job.spec)


def cron_job_faults(cron_job: CronJob) -> Faults:
    """Yield the faults of a cron job; its schedule is not parsed."""
    yield from object_meta(cron_job.metadata, True)
    if len(cron_job.metadata.name) > _MAX_CRON_NAME:
        yield invalid("metadata.name", cron_job.metadata.name, f"must be no more than {_MAX_CRON_NAME} characters")
    if not cron_job.spec.schedule:
        yield required("spec.schedule")
    policies = ("Allow", "Forbid", "Replace")
    yield from one_of("spec.concurrencyPolicy", cron_job.spec.concurrency_policy or None, policies)
    yield from _job_spec("spec.jobTemplate.spec", cron_job.spec.job_template.spec)


def _job_spec(path: str, spec: JobSpec) -> Faults:
    yield from nonnegative(f"{path}.parallelism", spec.parallelism)
    yield from nonnegative(f"{path}.completions", spec.completions)
    yield from one_of(f"{path}.completionMode", spec.completion_mode or None, ("NonIndexed", "Indexed"))
    if spec.completion_mode == "Indexed" and spec.completions is None and spec.parallelism is not None:
        yield required(f"{path}.completions", "when completion mode is Indexed")
    yield from label_selector(f"{path}.selector", spec.selector)
    yield from pod_template_faults(f"{path}.template", spec.template)
    policy = spec.template.spec.restart_policy
    if policy not in {"OnFailure", "Never"}:
        # The default is Always; a real API server requires an explicit policy as well.
        at = f"{path}.template.spec.restartPolicy"
        if policy in {"Always", ""}:
            yield required(at, 'valid values: "OnFailure", "Never"')
        else:
            yield unsupported(at, policy, ("OnFailure", "Never"))


# -- budgets and priorities ---------------------------------------------------------------------------------------------


def budget_faults(budget: PodDisruptionBudget) -> Faults:
    """Yield the faults of a disruption budget."""
    spec = budget.spec
    yield from object_meta(budget.metadata, True, check_path_segment)
    if spec.min_available is not None and spec.max_unavailable is not None:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    yield from _number_or_percent("spec.minAvailable", spec.min_available)
    yield from _number_or_percent("spec.maxUnavailable", spec.max_unavailable)
    yield from label_selector("spec.selector", spec.selector)
    policies = ("AlwaysAllow", "IfHealthyBudget")
    yield from one_of("spec.unhealthyPodEvictionPolicy", spec.unhealthy_pod_eviction_policy, policies)
    yield from nonnegative("status.disruptionsAllowed", budget.status.disruptions_allowed)


def _number_or_percent(path: str, value: int | str | None) -> Faults:
    if isinstance(value, int):
        yield from nonnegative(path, value)
    elif value is not None and not _PERCENT.fullmatch(value):
        why = "a valid percent string must be a numeric string followed by an ending '%' "
        yield invalid(path, value, f"{why}(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')")
    elif value is not None and (len(value) > 5 or int(value[:-1]) > 100):
        yield invalid(path, value, "must not be greater than 100%")


def priority_class_faults(priority_class: PriorityClass) -> Faults:
    """Yield the faults of a priority class, including reserved names and values."""
    metadata, value = priority_class.metadata, priority_class.value
    yield from object_meta(metadata, False)
    yield from int32("value", value)
    if metadata.name.startswith("system-"):
        own = SYSTEM_PRIORITY_CLASSES.get(metadata.name)
        wrong = f"{metadata.name} is not a known system priority class"
        if own is not None:
            wrong = "" if own.value == value else f"value of {metadata.name} PriorityClass must be {own.value}"
        if wrong:
            why = f"priority class names with 'system-' prefix are reserved for system use only. error: {wrong}"
            yield forbidden("metadata.name", why)
    elif value > _HIGHEST_PRIORITY:
        yield forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}")
    yield from one_of("preemptionPolicy", priority_class.preemption_policy, ("PreemptLowerPriority", "Never"))
