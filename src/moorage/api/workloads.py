"""Workloads, disruption budgets and priority classes."""

from __future__ import annotations

from typing import Any

from moorage.api.core import LabelSelector, Object, ObjectMeta, PodTemplateSpec, Value
from moorage.api.meta import Int64


class WorkloadCondition(Value):
    type: str = ""
    status: str = ""


class WorkloadStatus(Value):
    replicas: Int64 = 0
    ready_replicas: Int64 = 0
    active: Int64 = 0
    succeeded: Int64 = 0
    failed: Int64 = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    conditions: tuple[WorkloadCondition, ...] = ()


class DeploymentSpec(Value):
    replicas: Int64 | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    strategy: dict[str, Any] = {}
    paused: bool = False


class Deployment(Object):
    spec: DeploymentSpec = DeploymentSpec()
    status: WorkloadStatus = WorkloadStatus()


class ReplicaSetSpec(Value):
    replicas: Int64 | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class ReplicaSet(Object):
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: WorkloadStatus = WorkloadStatus()


class StatefulSetOrdinals(Value):
    start: Int64 = 0


class StatefulSetSpec(Value):
    replicas: Int64 | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    ordinals: StatefulSetOrdinals | None = None
    update_strategy: dict[str, Any] = {}
    volume_claim_templates: tuple[dict[str, Any], ...] = ()


class StatefulSet(Object):
    spec: StatefulSetSpec = StatefulSetSpec()
    status: WorkloadStatus = WorkloadStatus()


class DaemonSetSpec(Value):
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    update_strategy: dict[str, Any] = {}


class DaemonSet(Object):
    spec: DaemonSetSpec = DaemonSetSpec()


class JobSpec(Value):
    parallelism: Int64 | None = None
    completions: Int64 | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    selector: LabelSelector | None = None
    #: If True, the user, not the API server, sets the selector and the matching labels of the pod template.
    manual_selector: bool = False
    #: If set and not ``kubernetes.io/job-controller``, another controller creates the pods.
    managed_by: str | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    active_deadline_seconds: Int64 | None = None
    #: How its pods are scheduled together (gate WorkloadWithJob, since 1.37); only the Job controller reads it.
    scheduling: dict[str, Any] | None = None


class Job(Object):
    spec: JobSpec = JobSpec()
    status: WorkloadStatus = WorkloadStatus()


class JobTemplateSpec(Value):
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()


class CronJobSpec(Value):
    schedule: str = ""
    time_zone: str | None = None
    suspend: bool = False
    concurrency_policy: str = "Allow"
    job_template: JobTemplateSpec = JobTemplateSpec()


class CronJob(Object):
    spec: CronJobSpec = CronJobSpec()


class PodDisruptionBudgetSpec(Value):
    selector: LabelSelector | None = None
    min_available: Int64 | str | None = None
    max_unavailable: Int64 | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Value):
    disruptions_allowed: Int64 = 0
    disrupted_pods: dict[str, str] = {}
    current_healthy: Int64 = 0
    desired_healthy: Int64 = 0
    expected_pods: Int64 = 0
    observed_generation: Int64 = 0


class PodDisruptionBudget(Object):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class PriorityClass(Object):
    value: Int64 = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None
