"""``simulate``: one call from objects and a configuration to a run. The library and the command use it."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Any, Final

from moorage.api.core import Object, Pod
from moorage.api.feature_gates import FeatureGates
from moorage.api.pod_groups import PodGroup
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.basis.printable import counted, some
from moorage.core.building.builder import build_scheduler
from moorage.core.config.configured_extenders import extenders_of
from moorage.core.config.profiles import ResolvedProfile
from moorage.core.config.scheduler_document import Loaded
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision
from moorage.core.engine.engine_state import STANDARD_PARTS, EngineParts, EngineSettings
from moorage.core.engine.scheduler import Scheduler
from moorage.core.queue import QueueTimes
from moorage.errors import InputError
from moorage.framework.effects import Question
from moorage.framework.mistakes import mistakes_in
from moorage.framework.profile import Timer
from moorage.plugins import builtin_registry
from moorage.report.node_scores import ScoreLog, scoring_of
from moorage.report.outcome import InputNote, Run
from moorage.simulator.outcome_collector import closed_gate_notes, collect
from moorage.simulator.pod_records import SimulatedAttempt, in_turn
from moorage.simulator.simulation import PodRecord, SimulatedCluster, wants_a_node

#: kube-scheduler retries every unschedulable pod after five minutes, in case it missed an event. A simulation misses no
#: events, so pods wait for an event that helps them; all are retried once at the end of the run.
NEVER_S = math.inf


@dataclass(frozen=True, slots=True)
class Options:
    """How to simulate. ``config`` is the text of a KubeSchedulerConfiguration or a Policy, ``where`` its name in messages.

    ``emulate`` is the release to emulate (1.34 or 1.34.1); by default the release of the configuration's apiVersion.
    ``provider`` names an algorithm provider to use instead of a configuration.
    ``feature_gates`` is the value of ``--feature-gates``; if it is empty and the release is the current one, ``gates`` apply.
    ``max_disks`` limits the in-tree disks of each kind per node, in releases with these limits, for nodes that state none.
    ``plugins`` are classes in addition to the built-in ones; a profile runs them if the configuration enables them.
    ``scores`` records how nodes were picked for the pods it selects; then even a single feasible node is scored.
    ``clock`` and ``timer`` measure every plugin call at every extension point, if both are given.
    ``ask`` sends a question to an extender and returns the body of the reply; ``skip_extenders`` ignores the configured
    extenders. If there are extenders, one of the two is required.
    ``reconfigure`` changes the configuration after it is read.
    ``as_default`` names other schedulers; the first profile schedules their pods, too.
    ``on_decision`` is called with each decision after its effects, to show progress; ``on_repeats`` with how many waiting pods
    fail as before in its place, which saves their decisions.
    ``quota`` enforces resource quotas and limit ranges; without it, the pods that they refuse are created.
    """

    config: bytes | None = None
    where: str = "the default configuration"
    emulate: str | None = None
    provider: str = ""
    feature_gates: str = ""
    plugins: tuple[Any, ...] = ()
    gates: FeatureGates = field(default_factory=FeatureGates)
    max_disks: int | None = None
    seed: int = 0
    scores: ScoreLog | None = None
    clock: Callable[[], float] | None = None
    timer: Timer | None = None
    ask: Callable[[Question], bytes] | None = None
    skip_extenders: bool = False
    quota: bool = True
    reconfigure: Callable[[Loaded], Loaded] | None = None
    as_default: tuple[str, ...] = ()
    on_decision: Callable[[Decision], None] | None = None
    on_repeats: Callable[[int], None] | None = None

    @property
    def source(self) -> ConfigSource:
        """Where the configuration comes from."""
        return ConfigSource(self.config, self.where, self.emulate, self.provider, self.feature_gates, self.plugins, self.gates)


def load_options(options: Options) -> Loaded:
    """Return the configuration of the options.

    Raises  ConfigError, InputError
    """
    loaded = load_source(options.source)
    loaded = loaded if options.reconfigure is None else options.reconfigure(loaded)
    return with_fields(loaded, profiles=(*loaded.profiles, *_more_profiles(loaded, options.as_default)))


def _more_profiles(loaded: Loaded, names: Iterable[str]) -> Iterator[ResolvedProfile]:
    """Yield a copy of the first profile for each scheduler that none of the profiles has the name of."""
    known = {one.scheduler_name for one in loaded.profiles}
    for name in dict.fromkeys(names):
        if name not in known:
            yield with_fields(loaded.profiles[0], scheduler_name=name)


def kinds_named(options: Options) -> tuple[str, ...]:
    """Return the custom kinds that enabled plugins name in ``wakes_on``, for ``moorage.read(custom=...)``.

    Raises  ConfigError, InputError
    """
    loaded = load_options(options)
    shipped = builtin_registry(loaded.release)
    if all(name in shipped for profile in loaded.profiles for names in profile.points.values() for name in names):
        return ()
    scheduler, _ = build_scheduler(loaded, Cycle(options.seed), EngineSettings(max_disks=options.max_disks))
    return tuple(map(str, scheduler.named_kinds.kinds))


#: An empty simulation, and notes on its plugins.
Prepared = tuple[SimulatedCluster, list[InputNote]]

#: How the note on a plugin ends that no profile runs.
IDLE: Final = " was loaded, but no profile enables it"


def prepare(
    options: Options,
    on_attempt: Callable[[SimulatedAttempt], None] | None = None,
    *,
    cycle: type[Cycle] = Cycle,
    parts: EngineParts = STANDARD_PARTS,
    simulation: type[SimulatedCluster] = SimulatedCluster,
    loaded: Loaded | None = None,
) -> Prepared:
    """Return an empty simulation with its profiles built, and notes on enabled plugins that do not exist.

    ``parts`` and ``simulation`` are the types that it is made of; ``loaded`` replaces the configuration of the options.

    Raises  ConfigError, InputError
    """
    loaded = loaded or load_options(options)
    configuration = loaded.configuration
    clock, timer = options.clock, options.timer
    scheduler, missing = build_scheduler(
        loaded,
        _cycle(loaded, options, cycle),
        EngineSettings(QueueTimes(max_unschedulable_s=NEVER_S), options.max_disks, parts),
        wrap=None if clock is None or timer is None else lambda profile: profile.timed(clock, timer),
    )
    notes = [InputNote("MissingPlugin", f"plugin {name} is enabled but not available; it was left out") for name in missing]
    if configuration.extenders and not scheduler.cycle.extenders:
        notes.append(InputNote("Extenders", f"{counted(len(configuration.extenders), 'extender')} skipped, as requested"))
    notes += [InputNote("Remark", f"{options.where}: {loaded.note}")] if loaded.note else []
    notes += [InputNote("Remark", f"{options.where}: {text}") for text in loaded.warnings]
    notes += [InputNote("PluginMistake", text) for text in mistakes_in(scheduler.profiles.values())]
    idle = sorted(cls.name for cls in options.plugins if not any(cls.name in p.plugins for p in scheduler.profiles.values()))
    notes += [
        InputNote("UnusableKind", f"a plugin names the invalid kind {name}; use the form plural.version.group")
        for name in scheduler.named_kinds.unusable
    ]
    notes += [InputNote("IdlePlugin", f"plugin {name}{IDLE}") for name in idle]
    noted = _noted(on_attempt, options.scores, scheduler)
    made = simulation(scheduler, noted, ask=options.ask, on_decision=options.on_decision, on_repeats=options.on_repeats)
    return made, notes


def _cycle(loaded: Loaded, options: Options, kind: type[Cycle]) -> Cycle:
    configuration = loaded.configuration
    percentage = configuration.percentage_of_nodes_to_score or 0
    extenders = () if options.skip_extenders else extenders_of(configuration.extenders, loaded.release)
    if extenders and options.ask is None:
        urls = ", ".join(one.shown for one in extenders)
        raise InputError(
            f"{options.where}: {counted(len(extenders), 'extender')} configured ({urls}), and a simulation calls extenders"
            " only on request; choose --extenders=ask (in a program: Options(ask=...)) or --extenders=skip"
            " (Options(skip_extenders=True))"
        )
    return kind(options.seed, percentage, always_score=options.scores is not None, extenders=extenders)


def _noted(
    on_attempt: Callable[[SimulatedAttempt], None] | None, scores: ScoreLog | None, scheduler: Scheduler
) -> Callable[[SimulatedAttempt], None] | None:
    """Return the callback for decisions: it calls the log of scores, then ``on_attempt``."""
    if scores is None:
        return on_attempt

    def report(attempt: SimulatedAttempt) -> None:
        decision = attempt.decision
        if scores.wants(decision):
            names = [node.name for node in scheduler.snapshot.table.nodes]
            scores.note(scoring_of(decision, scheduler.profiles[decision.pod.spec.scheduler_name], names))

    return in_turn(report, on_attempt)


def simulate(
    objects: Iterable[Object],
    options: Options = Options(),
    *,
    on_attempt: Callable[[SimulatedAttempt], None] | None = None,
    notes: Iterable[InputNote] = (),
    workloads: Mapping[str, str] | None = None,
    gone: Iterable[PodRecord] = (),
    prepared: Prepared | None = None,
) -> Run:
    """Schedule every pending pod among ``objects`` and return the run.

    Objects are used as they are: apply ``moorage.api.defaults`` first if a user wrote them. ``gone``: records of pods that were
    deleted before the run, for the report. ``prepared``: the empty simulation to run, instead of one made for these options.

    Raises  ConfigError, InputError
    """
    simulation, missing = prepared or prepare(options, on_attempt)
    known = list(objects)
    simulation.load(known)
    simulation.run()
    left = _not_pending(known, simulation.scheduler.profiles)
    aside = closed_gate_notes(simulation, sum(isinstance(obj, PodGroup) for obj in known))
    release, every = simulation.scheduler.gates.release, [*notes, *missing, *left, *aside]
    return collect(simulation, release, notes=every, workloads=workloads, gone=gone)


def _not_pending(objects: Iterable[Object], profiles: Collection[str]) -> Iterator[InputNote]:
    """Yield notes on pods without a node that are not pending: finished, terminating, or for another scheduler."""
    over: list[str] = []
    pods: dict[str, list[str]] = {}
    for pod in objects:
        if not isinstance(pod, Pod) or pod.spec.node_name:
            continue
        if not wants_a_node(pod):
            over.append(f"{pod.namespace}/{pod.name}")
        elif pod.spec.scheduler_name not in profiles:
            pods.setdefault(pod.spec.scheduler_name, []).append(f"{pod.namespace}/{pod.name}")
    if over:
        yield InputNote("NotPending", f"{counted(len(over), 'pod')} not scheduled (ended, or being deleted): {some(over)}")
    for name, keys in sorted(pods.items()):
        text = f"{counted(len(keys), 'pod')} not scheduled (no profile has the scheduler name {json.dumps(name)}): {some(keys)}"
        text += f"; --as-default {shlex.quote(name)} places {'it' if len(keys) == 1 else 'them'} with the first profile"
        yield InputNote("OtherScheduler", text)
