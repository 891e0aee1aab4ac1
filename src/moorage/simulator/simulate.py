"""One call from a cluster and a configuration to what comes of it: the library's face, and what the command uses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from moorage.api.core import Pod
from moorage.api.meta import Object
from moorage.api.pod_groups import PodGroup
from moorage.config.algorithm import Algorithm, load_algorithm
from moorage.config.scheduler_document import Loaded, from_provider, load_any, load_default
from moorage.cycle.cycle import Cycle
from moorage.engine.builder import build_scheduler
from moorage.engine.extenders import extenders_of
from moorage.engine.scheduler import Scheduler
from moorage.errors import InputError
from moorage.framework.effects import Question
from moorage.framework.features import FeatureGates
from moorage.framework.profile import Timer
from moorage.framework.registry import Registry
from moorage.plugins import builtin_registry
from moorage.releases import TODAY
from moorage.report.outcome import InputNote, Run
from moorage.report.scores import ScoreLog, scoring_of
from moorage.simulator.group_outcomes import closed_gate_notes
from moorage.simulator.outcome import collect
from moorage.simulator.simulation import PodRecord, SimulatedAttempt, Simulation, wants_a_node
from moorage.simulator.wording import counted, some

__all__ = ["Options", "kinds_named", "load_options", "prepare", "registry_with", "simulate"]

#: kube-scheduler tries every pending pod again after five minutes, in case an event that would help was overlooked. In a
#: simulation nothing is overlooked, so pods wait for their event; once, when nothing else is left to happen, all are tried.
NEVER_S = math.inf


@dataclass(frozen=True, slots=True)
class Options:
    """How to simulate. ``config`` is the text of a KubeSchedulerConfiguration or a Policy, ``where`` its name for messages.

    ``emulate`` is the release whose rules apply (1.19, 1.20, 1.21 or 1.36); without it, the one that the configuration's
    apiVersion stands for. ``provider`` names an algorithm provider to use in the place of a configuration.
    ``feature_gates`` are read as that release reads the flag; where they are empty and the release is today's, ``gates`` hold.
    ``max_disks`` is how many disks of a built-in kind a node takes in those releases that does not say so itself.
    ``plugins`` are classes beside the built-in ones; a profile runs them where the configuration enables them.
    ``scores`` keeps how nodes were picked for the pods it asks about; then every feasible node is scored, one alone too.
    ``clock`` and ``timer`` measure every plugin call at every extension point, if both are given.
    ``ask`` puts a question to an extender and returns the body of the reply; ``skip_extenders`` does without those that are
    configured. One of the two is needed where there are any.
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


def registry_with(plugins: Iterable[Any], config: bytes = b"", release: str = TODAY) -> Registry:
    """Return the built-in plugins of a release, these, and the installed ones that the configuration names.

    Raises  InputError if one is no plugin, its name is taken, or an installed one cannot be imported
    """
    registry = builtin_registry(release).with_installed(config.decode("utf-8", "replace"))
    for plugin in plugins:
        name = str(getattr(plugin, "name", ""))
        if name not in registry or registry[name] is not plugin:
            registry.add(plugin)
    return registry


@dataclass(frozen=True, slots=True)
class _Rules:
    """The plugins and gates that the options bring, for whichever release they are asked for."""

    options: Options

    def registry(self, release: str) -> Registry:
        return registry_with(self.options.plugins, self.options.config or b"", release)

    def gates(self, release: str) -> FeatureGates:
        given = self.options.feature_gates
        return self.options.gates if release == self.options.gates.release and not given else FeatureGates.parse(given, release)


def load_options(options: Options, algorithm: Algorithm | None = None) -> Loaded:
    """Return what the options say to schedule by; with ``algorithm``, as 1.19 to 1.21 took it beside a configuration.

    Raises  ConfigError, InputError
    """
    rules = _Rules(options)
    if algorithm is not None:
        return load_algorithm(algorithm, options.config, options.where, rules, options.emulate)
    if options.provider:
        if options.config is not None:
            raise InputError("an algorithm provider and a configuration do not go together; give one of them")
        return from_provider(options.provider, rules, options.emulate)
    if options.config is None:
        return load_default(rules, options.emulate)
    return load_any(options.config, options.where, rules, options.emulate)


def kinds_named(options: Options) -> tuple[str, ...]:
    """Return the kinds of their own that enabled plugins name in ``wakes_on``, for ``moorage.read(custom=...)`` to read.

    Raises  ConfigError, InputError
    """
    loaded = load_options(options)
    shipped = builtin_registry(loaded.release)
    if all(name in shipped for profile in loaded.profiles for names in profile.points.values() for name in names):
        return ()
    scheduler, _ = build_scheduler(loaded, Cycle(options.seed), max_disks=options.max_disks)
    return tuple(map(str, scheduler.named_kinds.kinds))


def prepare(
    options: Options, on_attempt: Callable[[SimulatedAttempt], None] | None = None, *, cycle: type[Cycle] = Cycle
) -> tuple[Simulation, list[InputNote]]:
    """Return an empty simulation with its profiles built, and notes on enabled plugins that do not exist here.

    Raises  ConfigError, InputError
    """
    loaded = load_options(options)
    configuration = loaded.configuration
    clock, timer = options.clock, options.timer
    scheduler, missing = build_scheduler(
        loaded,
        _cycle(loaded, options, cycle),
        max_unschedulable_s=NEVER_S,
        max_disks=options.max_disks,
        wrap=None if clock is None or timer is None else lambda profile: profile.timed(clock, timer),
    )
    notes = [InputNote("MissingPlugin", f"plugin {name} is enabled but not available; it was left out") for name in missing]
    if configuration.extenders and not scheduler.cycle.extenders:
        notes.append(InputNote("Extenders", f"{counted(len(configuration.extenders), 'extender')} left out, as asked for"))
    idle = sorted(cls.name for cls in options.plugins if not any(cls.name in p.plugins for p in scheduler.profiles.values()))
    notes += [
        InputNote("UnusableKind", f"a plugin names {name}, which is no kind; write it as plural.version.group")
        for name in scheduler.named_kinds.unusable
    ]
    notes += [InputNote("IdlePlugin", f"plugin {name} was loaded, but no profile enables it") for name in idle]
    return Simulation(scheduler, _told(on_attempt, options.scores, scheduler), ask=options.ask), notes


def _cycle(loaded: Loaded, options: Options, kind: type[Cycle]) -> Cycle:
    configuration = loaded.configuration
    percentage = configuration.percentage_of_nodes_to_score or 0
    extenders = () if options.skip_extenders else extenders_of(configuration.extenders, loaded.release)
    if extenders and options.ask is None:
        urls = ", ".join(one.shown for one in extenders)
        raise InputError(
            f"{options.where}: {counted(len(extenders), 'extender')} configured ({urls}), and a simulation asks nobody over"
            " the network by itself; choose --extenders=ask (in a program: Options(ask=...)) or --extenders=skip"
            " (Options(skip_extenders=True))"
        )
    return kind(options.seed, percentage, always_score=options.scores is not None, extenders=extenders)


def _told(
    on_attempt: Callable[[SimulatedAttempt], None] | None, scores: ScoreLog | None, scheduler: Scheduler
) -> Callable[[SimulatedAttempt], None] | None:
    """Return whom to tell of decisions: ``on_attempt``, and before it the log of scores."""
    if scores is None:
        return on_attempt

    def tell(attempt: SimulatedAttempt) -> None:
        decision = attempt.decision
        if scores.wants(decision):
            names = [node.name for node in scheduler.snapshot.table.nodes]
            scores.note(scoring_of(decision, scheduler.profiles[decision.pod.spec.scheduler_name], names))
        if on_attempt is not None:
            on_attempt(attempt)

    return tell


def simulate(
    objects: Iterable[Object],
    options: Options = Options(),
    *,
    on_attempt: Callable[[SimulatedAttempt], None] | None = None,
    notes: Iterable[InputNote] = (),
    workloads: Mapping[str, str] | None = None,
    gone: Iterable[PodRecord] = (),
) -> Run:
    """Place every pending pod among ``objects`` and return what came of it.

    Objects are taken as they are: apply ``moorage.api.defaults`` first where they come from a user's hand. ``gone``: pods
    that went before, for the report.

    Raises  ConfigError, InputError
    """
    simulation, missing = prepare(options, on_attempt)
    known = list(objects)
    simulation.load(known)
    simulation.run()
    left = _left_alone(known, simulation.scheduler.profiles)
    aside = closed_gate_notes(simulation, sum(isinstance(obj, PodGroup) for obj in known))
    release, every = simulation.scheduler.gates.release, [*notes, *missing, *left, *aside]
    return collect(simulation, release, notes=every, workloads=workloads, gone=gone)


def _left_alone(objects: Iterable[Object], profiles: Collection[str]) -> Iterator[InputNote]:
    """Yield notes on pods without a node that are nothing to place: ended or about to go, or for another scheduler."""
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
        yield InputNote("NotPending", f"{counted(len(over), 'pod')} not placed, having ended or being deleted: {some(over)}")
    for name, keys in sorted(pods.items()):
        text = (
            f"{counted(len(keys), 'pod')} not placed, as no profile here is of the scheduler {json.dumps(name)}: {some(keys)}"
        )
        yield InputNote("OtherScheduler", text)
