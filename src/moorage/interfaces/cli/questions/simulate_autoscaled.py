"""``moorage simulate --autoscale``: let an autoscaler add and remove nodes while the pods are scheduled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from moorage.api.core import Node
from moorage.api.documents.object_fields import seconds
from moorage.api.reading.manifests import read_first_yaml
from moorage.basis.inputs.components import Component
from moorage.errors import InputError
from moorage.interfaces.cli.cluster_files import CONFIG_LIMIT, read_file
from moorage.laboratory.cluster_objects import read_given
from moorage.laboratory.dynamics.cluster_autoscaler_process import ClusterAutoscaler
from moorage.laboratory.dynamics.cluster_pools import AUTOSCALER_KINDS, pools_of_cluster
from moorage.laboratory.dynamics.group_templates import read_templates
from moorage.laboratory.dynamics.karpenter_process import MONDAY_S, KarpenterProcess
from moorage.laboratory.dynamics.node_pools import read_pools
from moorage.laboratory.dynamics.pod_arrivals import TraceArrivals
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.laboratory.recording.replay import LogEvents
from moorage.laboratory.recording.run_recorder import RunRecorder
from moorage.report.outcome import InputNote, Run
from moorage.report.short_names import some_pods
from moorage.report.style import columns, item
from moorage.simulator.autoscalers.instance_types import read_price_list
from moorage.simulator.autoscalers.karpenter.scene import KINDS
from moorage.simulator.autoscalers.karpenter.settings import read_settings
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_run import input_notes
from moorage.simulator.pod_records import SimulatedAttempt, in_turn
from moorage.simulator.simulate import Options
from moorage.simulator.trace import Trace

Autoscaler: TypeAlias = ClusterAutoscaler | KarpenterProcess

#: Default duration of a simulation in seconds; for a trace it starts at the last arrival.
_DEFAULT_S = 3600.0
#: What gives node groups without nodes a template, where a command has the option.
TEMPLATES_REMEDY: Final = "--node-templates gives one"
#: The rows of the table over time.
_SPANS: Final = 6


class AutoscalerOptions(NamedTuple):
    """The options of the autoscaler.

    ``file``             the file of its pools, ``karpenter`` or ``cluster-autoscaler``; ``instance_types``: the file of prices
    ``expander``         how a pool is chosen; ``priorities_file``: the expander's config map
    ``interruptions``    of a spot node in an hour; ``provision_s``: from a launch until the node is ready
    ``gates``            of Karpenter; ``templates``: the file of nodes of groups that have none
    ``record``           a directory for a log of the run
    """

    file: str
    expander: str
    priorities_file: str | None = None
    instance_types: str | None = None
    interruptions: float = 0.0
    provision_s: float = 60.0
    record: str | None = None
    gates: str | None = None
    templates: str | None = None

    def priorities(self) -> str:
        """Return the priorities in the config map, or in a file that has nothing else; "" without a file."""
        if self.priorities_file is None:
            return ""
        text = read_file(self.priorities_file, CONFIG_LIMIT).decode("utf-8", "replace")
        tree = read_first_yaml(text, self.priorities_file)
        held = tree.get("data", {}).get("priorities") if isinstance(tree, dict) and tree.get("kind") == "ConfigMap" else text
        if not isinstance(held, str):
            raise InputError(f"{self.priorities_file}: data.priorities: not found in the config map")
        return held


def simulate_autoscaled(
    given: ClusterInput | Trace, options: Options, asked: AutoscalerOptions, until_s: float | None,
    on_attempt: Callable[[SimulatedAttempt], None] | None, events: LogEvents | None = None, *, text: bool = False,
) -> tuple[Run, str]:  # fmt: skip
    """Return the run, and a table of the autoscaler's actions. Without ``text``, the run has them as notes, too.

    ``events``  what a log has of that time

    Raises  InputError
    """
    cluster = given if isinstance(given, ClusterInput) else read_given(list(given.nodes))
    simulation = Simulation(cluster, options, keep_records=True)
    simulation.engine.on_attempt = in_turn(simulation.engine.on_attempt, on_attempt)
    taken_s = seconds(cluster.report.taken_at) or 0.0
    documents = [held.document for held in cluster.custom]
    scaler = autoscaler_of(asked, documents, cluster.nodes, taken_s, cluster.components, remedy=TEMPLATES_REMEDY)
    last_s = 0.0
    if isinstance(given, Trace):
        simulation.use(TraceArrivals(given.arrivals))
        last_s = given.arrivals[-1].time_s if len(given.arrivals) else 0.0
    if events is not None:
        simulation.use(events)
        until_s = events.seconds if until_s is None else until_s
    simulation.use(scaler)
    before = scaler.sizes()
    recorder = None
    if asked.record is not None:
        # Without a time of the input, the run begins when the newest of its objects was there.
        made = (seconds(one.metadata.creation_timestamp) for one in (*cluster.nodes, *cluster.pods))
        recorder = simulation.use(RunRecorder(asked.record, seconds(cluster.report.taken_at) or max(MONDAY_S, *made)))
    simulation.run(until=last_s + _DEFAULT_S if until_s is None else until_s)
    if recorder is not None:
        recorder.close()
    run = simulation.outcome() if events is None else events.completed(simulation.outcome())
    notes = input_notes(given) if isinstance(given, ClusterInput) else [InputNote("Remark", text) for text in given.notes]
    lines = _lines(scaler, before)
    missing = (f"not in the input: {text}" for text in scaler.missing)
    settings = (
        [f"Karpenter: {scaler.settings.text()}"] if isinstance(scaler, KarpenterProcess) and scaler.settings.source else []
    )
    told = [*settings, *_disruptions(scaler), *_not_added(scaler, simulation), *missing]
    table = _table(scaler, lines, simulation.now_s) + _over_time(scaler, simulation.now_s)
    if not text:
        notes += [InputNote("Remark", f"autoscaler: {told_}") for told_ in (*map(_sentence, lines), *told)]
    below = "".join(item(told_) + "\n" for told_ in told)
    return replace(run, notes=(*run.notes, *notes)), table + below


def kinds_of(autoscaler: str) -> tuple[str, ...]:
    """Return the kinds that an autoscaler reads."""
    return {"karpenter": KINDS, "cluster-autoscaler": AUTOSCALER_KINDS}.get(autoscaler, ())


def autoscaler_of(
    asked: AutoscalerOptions, documents: Sequence[Mapping[str, Any]], nodes: Sequence[Node], start_s: float = 0.0,
    components: Sequence[Component] = (), *, remedy: str = "",
) -> Autoscaler:  # fmt: skip
    """Return the autoscaler that is asked for. ``documents``: the cluster's objects of ``kinds_of``, as they are.

    ``start_s``  Unix seconds at the beginning of the run; 0 if the input does not say when it was taken
    ``remedy``   the option that gives node groups without nodes a template, if the command has it
    Raises  InputError
    """
    prices = None if asked.instance_types is None else read_price_list(asked.instance_types)
    if asked.file == "cluster-autoscaler":
        templates = () if asked.templates is None else read_templates(asked.templates, prices)
        found = pools_of_cluster(documents, nodes, prices, asked.provision_s, templates, components, remedy)
        return ClusterAutoscaler(
            found.pools, flags=found.flags, expander=asked.expander, priorities=asked.priorities() or found.priorities,
            missing=found.missing, currency=prices.currency if prices is not None else "", start_s=start_s,
        )  # fmt: skip
    if asked.file != "karpenter":
        return ClusterAutoscaler(read_pools(asked.file), expander=asked.expander, priorities=asked.priorities())
    if prices is None:
        raise InputError("--autoscale karpenter: give what can be launched, with prices: --instance-types FILE")
    settings = read_settings(components, asked.gates)
    return KarpenterProcess(
        documents, prices, provision_s=asked.provision_s, interruptions=asked.interruptions, settings=settings,
        start_s=start_s or MONDAY_S,
    )  # fmt: skip


def _not_added(scaler: Autoscaler, simulation: Simulation) -> list[str]:
    """Return why no pool grows for the pods that are pending, those with one reason together."""
    found: dict[str, list[str]] = {}
    for queued in simulation.engine.scheduler.queue.ranked():
        text = scaler.why_not_added(queued.pod)
        if text:
            found.setdefault(text, []).append(queued.pod.key)
    return [f"{some_pods(names)}: {text}" for text, names in found.items()]


def _lines(scaler: Autoscaler, before: dict[str, int]) -> list[list[str]]:
    hours, costs, sizes, rows = scaler.node_hours(), scaler.costs(), scaler.sizes(), []
    for pool in sizes:
        added, removed = (
            sum(len(event.nodes) for event in scaler.events if (event.pool, event.action) == (pool, action))
            for action in ("ready", "down")
        )
        counts = before.get(pool, 0), added, removed, sizes[pool]
        rows.append([pool, *map(str, counts), f"{hours[pool]:.1f}", f"{costs[pool]:.2f}"])
    return rows


def _sentence(line: list[str]) -> str:
    name, before, added, removed, now, hours, cost = line
    return f"pool {name} had {before} nodes, {added} came and {removed} went, {now} at the end; {hours} node hours, cost {cost}"


def _table(scaler: Autoscaler, lines: list[list[str]], seconds: float) -> str:
    head = ["POOL", "BEFORE", "ADDED", "REMOVED", "AT THE END", "NODE HOURS", "COST"]
    currency = f" {scaler.currency}" if scaler.currency else ""
    whole = f"AUTOSCALER   {seconds / 3600:.1f} simulated hours, cost {scaler.cost():.2f}{currency}"
    return f"{whole}\n{columns(head, lines, right=(1, 2, 3, 4, 5, 6))}\n"


def _over_time(scaler: Autoscaler, seconds: float) -> str:
    """Return what the nodes cost in equal spans of the run, and how many came and went."""
    span = seconds / _SPANS
    if not span:
        return ""
    rows = []
    for at in range(_SPANS):
        begun, end = at * span, (at + 1) * span
        came, went = (
            sum(len(one.nodes) for one in scaler.events if one.action == action and begun <= one.time_s < end)
            for action in ("ready", "down")
        )
        rows.append([f"{begun / 3600:.2f} h", str(came), str(went), f"{scaler.cost_in(begun, end):.3f}"])
    return f"\n{columns(['FROM', 'CAME', 'WENT', 'COST'], rows, right=(0, 1, 2, 3))}\n"


def _disruptions(scaler: Autoscaler) -> list[str]:
    """Return how many nodes went for which reason, as one sentence."""
    texts = {name: name for name in ("empty", "drifted", "underutilized")} | {"interrupted": "interrupted by the provider"}
    counts = Counter(event.action for event in scaler.events)
    told = [f"{counts[action]} {text}" for action, text in texts.items() if counts[action]]
    return [f"nodes disrupted: {', '.join(told)}"] if told else []
