"""Workloads, disruption budgets and priority classes."""

from __future__ import annotations

from typing import Any

from moorage.api.core import LabelSelector, Object, ObjectMeta, PodTemplateSpec, Value


class WorkloadCondition(Value):
    type: str = ""
    status: str = ""


class WorkloadStatus(Value):
    replicas: int = 0
    ready_replicas: int = 0
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    conditions: tuple[WorkloadCondition, ...] = ()


class DeploymentSpec(Value):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    paused: bool = False


class Deployment(Object):
    spec: DeploymentSpec = DeploymentSpec()
    status: WorkloadStatus = WorkloadStatus()


class ReplicaSetSpec(Value):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class ReplicaSet(Object):
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: WorkloadStatus = WorkloadStatus()


class StatefulSetOrdinals(Value):
    start: int = 0


class StatefulSetSpec(Value):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    ordinals: StatefulSetOrdinals | None = None
    volume_claim_templates: tuple[dict[str, Any], ...] = ()


class StatefulSet(Object):
    spec: StatefulSetSpec = StatefulSetSpec()
    status: WorkloadStatus = WorkloadStatus()


class DaemonSetSpec(Value):
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class DaemonSet(Object):
    spec: DaemonSetSpec = DaemonSetSpec()


class JobSpec(Value):
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    selector: LabelSelector | None = None
    #: If True, the user, not the API server, sets the selector and the matching labels of the pod template.
    manual_selector: bool = False
    #: If set and not ``kubernetes.io/job-controller``, another controller creates the pods.
    managed_by: str | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    active_deadline_seconds: int | None = None
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
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Value):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] = {}
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(Object):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class PriorityClass(Object):
    value: int = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None
