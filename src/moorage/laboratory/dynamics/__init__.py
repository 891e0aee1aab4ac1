"""A cluster over time: ``moorage.Simulation`` and its processes.

Arrivals and lifetimes of pods, nodes that fail and come back, an autoscaler over node pools, consolidation, and recorders.
"""

from moorage.laboratory.dynamics.cluster_autoscaler_process import ClusterAutoscaler
from moorage.laboratory.dynamics.consolidation_process import Consolidation
from moorage.laboratory.dynamics.failing_nodes import FailingNodes
from moorage.laboratory.dynamics.karpenter_process import KarpenterProcess
from moorage.laboratory.dynamics.node_pools import NodePool
from moorage.laboratory.dynamics.node_scalers import NodeScaler, ScalingEvent, compare_autoscalers
from moorage.laboratory.dynamics.pod_arrivals import (
    DAY,
    HOUR,
    MINUTE,
    WEEK,
    AtTimes,
    Distribution,
    Diurnal,
    Empirical,
    Exponential,
    Fixed,
    LogNormal,
    PodArrivals,
    PodKind,
    Poisson,
    Regular,
    TraceArrivals,
    UniformBetween,
    Weibull,
)
from moorage.laboratory.dynamics.simulation import ClusterProcess, Simulation, SimulationTotals
from moorage.laboratory.dynamics.state_recorder import StateRecorder
from moorage.report.explanation import scaling_table
from moorage.simulator.autoscalers.cluster_autoscaler.flags import AutoscalerFlags, read_flags
from moorage.simulator.autoscalers.cluster_autoscaler.loop import Unremovable

__all__ = [
    "DAY", "HOUR", "MINUTE", "WEEK", "AtTimes", "AutoscalerFlags", "ClusterAutoscaler", "ClusterProcess", "Consolidation",
    "Distribution", "Diurnal", "Empirical", "Exponential", "FailingNodes", "Fixed",
    "KarpenterProcess", "LogNormal", "NodePool", "NodeScaler", "PodArrivals",
    "PodKind", "Poisson", "Regular", "ScalingEvent", "Simulation", "SimulationTotals", "StateRecorder", "TraceArrivals",
    "UniformBetween", "Unremovable", "Weibull", "compare_autoscalers", "read_flags", "scaling_table",
]  # fmt: skip
