"""Replays a trace in virtual time: pods arrive at their times and run for their durations."""

from __future__ import annotations

from collections.abc import Callable

from moorage.engine.facts import Seen
from moorage.report.outcome import InputNote, Run
from moorage.simulator.outcome import collect
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedAttempt, SimulatedCluster
from moorage.simulator.trace import Trace
from moorage.simulator.trace_amounts import NEVER_ENDS

__all__ = ["simulate_trace"]


def simulate_trace(
    trace: Trace,
    options: Options,
    *,
    stay: bool = False,
    on_attempt: Callable[[SimulatedAttempt], None] | None = None,
    on_end: Callable[[SimulatedCluster], None] | None = None,
) -> Run:
    """Schedule every arrival of a trace, in order. With ``stay`` no pod ever finishes.

    Raises  ConfigError, InputError
    """
    simulation, notes = prepare(options, on_attempt)
    if stay:
        trace = trace.with_lifetimes(None)
    simulation.load(trace.nodes)
    for arrival in trace.arrivals:
        simulation.at(arrival.time_s, Seen(arrival.pod))
        if arrival.duration_s is not None:
            simulation.durations[arrival.pod.uid] = arrival.duration_s
    simulation.run()
    if on_end is not None:
        on_end(simulation)
    kind = "pods stay for good" if stay else "pods leave after the time they ran in the trace"
    about = f"trace of {len(trace.arrivals)} arrivals; {kind}"
    return collect(
        simulation,
        simulation.scheduler.gates.release,
        notes=[InputNote("Remark", text) for text in (about, *trace.notes, *_warnings(trace, stay=stay))] + notes,
    )


def _warnings(trace: Trace, *, stay: bool) -> list[str]:
    """Return the warnings about a trace, without the one that no pod ends if the caller asked for that."""
    return [text for text in trace.warnings() if not (stay and text == NEVER_ENDS)]
