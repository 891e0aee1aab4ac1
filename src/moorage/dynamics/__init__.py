"""A cluster over time: ``moorage.Simulation`` and its processes.

Arrivals and lifetimes of pods, nodes that fail and come back, an autoscaler over node pools, consolidation, and recorders.
"""

from moorage.dynamics.autoscaler import AutoscalerRules, ClusterAutoscaler, ScalingEvent
from moorage.dynamics.consolidation import Consolidation
from moorage.dynamics.distributions import (
    DAY,
    HOUR,
    MINUTE,
    WEEK,
    Distribution,
    Empirical,
    Exponential,
    Fixed,
    LogNormal,
    UniformBetween,
    Weibull,
)
from moorage.dynamics.failing_nodes import FailingNodes
from moorage.dynamics.node_pools import NodePool
from moorage.dynamics.pod_arrivals import AtTimes, Diurnal, PodArrivals, PodKind, Poisson, Regular, TraceArrivals
from moorage.dynamics.simulation import ClusterProcess, Simulation, SimulationTotals
from moorage.dynamics.state_recorder import StateRecorder

__all__ = [
    "DAY", "HOUR", "MINUTE", "WEEK", "AtTimes", "AutoscalerRules", "ClusterAutoscaler", "ClusterProcess", "Consolidation",
    "Distribution", "Diurnal", "Empirical", "Exponential", "FailingNodes", "Fixed", "LogNormal", "NodePool", "PodArrivals",
    "PodKind", "Poisson", "Regular", "ScalingEvent", "Simulation", "SimulationTotals", "StateRecorder", "TraceArrivals",
    "UniformBetween", "Weibull",
]  # fmt: skip
