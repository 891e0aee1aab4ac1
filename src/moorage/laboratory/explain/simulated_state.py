"""The state of a simulation, in the form that explanations read."""

from __future__ import annotations

from moorage.laboratory.explain.explained_state import ExplainedState
from moorage.simulator.simulate import Options, load_options
from moorage.simulator.simulation import SimulatedCluster

__all__ = ["state_of"]


def state_of(simulation: SimulatedCluster, options: Options) -> ExplainedState:
    """Return the state of a simulation that was made with these options."""
    leaves_out = options.skip_extenders and options.config is not None
    skipped = len(load_options(options).configuration.extenders) if leaves_out else 0
    scheduler = simulation.scheduler
    return ExplainedState(scheduler, scheduler.profiles, simulation.now, simulation.groups, simulation.ask, skipped)
