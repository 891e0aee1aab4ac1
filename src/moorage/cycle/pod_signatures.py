"""Find a pod's class: the signatures of all plugins, as one key that is quick to compare.

A dozen signatures cost more than a decision. Most follow from the pod's shape, so ``Signer`` caches them by shape. A plugin
whose signature also depends on objects (device classes, say) names their kinds, and a change of one clears the cache. A plugin
that names no kinds signs every pod.

Plugins that read other pods run for each pod of a class, unless they are idle: a plugin may declare that it has no effect on
pods of a shape until a log that it names changes (``Idle``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from moorage.errors import PluginError
from moorage.framework.plugin_failures import failure_text
from moorage.framework.plugin_runner import ask
from moorage.framework.profile import Step
from moorage.framework.reuse import Idle, Signature, Versioned
from moorage.state.cluster import Snapshot
from moorage.state.journal import Journal
from moorage.state.pod_info import PodInfo

__all__ = ["KnownShape", "Positions", "Signed", "Signer"]

_OWN: Final = "moorage."
#: Shapes cached; the cache is cleared when it is full.
_CAPACITY = 4096


class Signed(NamedTuple):
    """A pod's class, the plugins that run for each of its pods, and the part of its key by plugins that read only nodes."""

    key: Hashable
    asked: frozenset[str]
    on_nodes: Hashable = 0


class _Signing(NamedTuple):
    """A signature, and the plugins that share it."""

    plugins: tuple[str, ...]
    signature: Callable[[PodInfo], Signature | None]


class _Signings(NamedTuple):
    """The signatures of plugins that read only nodes, and of the others; and the plugins that have none."""

    on_nodes: Sequence[_Signing]
    on_rows: Sequence[_Signing]
    unsigned: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.on_nodes or self.on_rows or self.unsigned)


class Positions:
    """Logs with their positions at one time. ``of_pods`` are those that ``Snapshot.objects_changed`` does not count."""

    __slots__ = ("_logs", "of_all", "of_pods")

    def __init__(self, logs: list[Versioned]) -> None:
        self._logs = logs
        self.of_all = tuple({id(log): (log, log.position) for log in logs}.values())
        self.of_pods = tuple([pair for pair in self.of_all if not isinstance(pair[0], Journal)])

    def stand(self, logs: list[Versioned] | None = None) -> bool:
        """Return whether no log has moved on; and whether these are all of the given ``logs``, in this order."""
        if logs is not None and logs != self._logs:
            return False
        for log, position in self.of_all:  # noqa: SIM110 (a generator costs more than the comparing)
            if log.position != position:
                return False
        return True


class KnownShape(NamedTuple):
    """The first pod of a shape, which shares its computed values with later ones, and its class.

    The class is valid while the logs in ``stands_while`` stand.
    """

    first: PodInfo
    signed: Signed
    stands_while: Positions


class Signer:
    """Signs pods for the plugins of one profile.

    ``always_asked`` are the plugins whose signatures are not used; ``on_nodes`` are those that read only nodes.
    """

    def __init__(self, steps: Collection[Step], always_asked: frozenset[str], on_nodes: frozenset[str] = frozenset()) -> None:
        signing = [step for step in steps if step.name not in always_asked]
        self._always_asked = always_asked
        self._by_shape = _signings((step for step in signing if step.reuse.signature_reads is not None), on_nodes)
        self._each = _signings((step for step in signing if step.reuse.signature_reads is None), on_nodes)
        self._kinds = sorted({kind for step in signing for kind in step.reuse.signature_reads or ()}, key=repr)
        self._positions: list[int] = []
        self._may_idle = [
            Step(step.name, step.plugin, step.reuse.idle)
            for step in steps
            if step.reuse.idle is not None and step.name in always_asked
        ]
        #: True if all plugins are built in: their signatures contain no names of claims. Then shapes are compared without these
        #: names, which differ from pod to pod.
        self._skips_claims = all(type(step.plugin).__module__.startswith(_OWN) for step in steps)
        self._known: dict[bytes, KnownShape] = {}
        #: Signature → the number that replaces it, since signatures may be long.
        self._numbers: dict[Hashable, int] = {}
        self._given = 0
        #: What most shapes have in common: which plugins run for each pod, by those that idle, and the last logs.
        self._asked_beside: dict[tuple[str, ...], frozenset[str]] = {}
        self._last = Positions([])

    @property
    def signs_each(self) -> bool:
        """Return whether a plugin signs every pod, so that pods of one shape may belong to different classes."""
        return bool(self._each)

    def known(self, shape: bytes) -> KnownShape | None:
        """Return what is cached for a shape."""
        return self._known.get(shape)

    def sign(self, pod: PodInfo, snapshot: Snapshot, shape: bytes | None = None) -> Signed:
        """Return the pod's class. ``shape``: the pod's, if the caller has it.

        Raises  TypeError for a signature that cannot be hashed
        """
        if self._kinds:
            positions = [snapshot.changes_of(kind).position for kind in self._kinds]
            if positions != self._positions:
                self._known.clear()
                self._positions = positions
        claims = self._skips_claims and pod.names_claims
        if claims or shape is None:
            shape = pod.shape_without_claims() if claims else pod.shape()
        known = self._known.get(shape)
        if known is not None:
            pod.share(known.first)
            if not claims:
                pod.merge(known.first)
        if known is None or not known.stands_while.stand():
            known = self._known[shape] = self._first_look(pod, snapshot)
        return self._signed(self._each, pod, known.signed) if self._each else known.signed

    def _first_look(self, pod: PodInfo, snapshot: Snapshot) -> KnownShape:
        if len(self._known) >= _CAPACITY:
            self._known.clear()
        idle: list[str] = []
        logs: list[Versioned] = []
        for step in self._may_idle:
            answer: Idle = ask(step, "idle", pod, snapshot)
            if answer.now:
                idle.append(step.name)
            logs += answer.until
        if not self._last.stand(logs):
            self._last = Positions(logs)
        names = tuple(idle)
        asked = self._asked_beside.get(names)
        if asked is None:
            asked = self._asked_beside[names] = self._always_asked.difference(idle)
        return KnownShape(pod, self._signed(self._by_shape, pod, Signed(0, asked)), self._last)

    def _signed(self, signings: _Signings, pod: PodInfo, before: Signed) -> Signed:
        """Add signatures to ``before``."""
        on_nodes, without = _signature_of(signings.on_nodes, pod)
        on_rows, also_without = _signature_of(signings.on_rows, pod)
        asked = before.asked
        if signings.unsigned or without or also_without:
            asked = asked.union(signings.unsigned, without, also_without)
        part = self._number((before.on_nodes, asked, *on_nodes, *on_nodes.values()))
        return Signed(self._number((before.key, part, *on_rows, *on_rows.values())), asked, part)

    def _number(self, key: Hashable) -> int:
        """Return the number that stands for a key. Numbers are never reused, so old ones may be dropped."""
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= _CAPACITY:
                self._numbers.clear()
                self._known.clear()
            self._given += 1
            number = self._numbers[key] = self._given
        return number


def _signings(steps: Iterable[Step], on_nodes: frozenset[str]) -> _Signings:
    """Return the signatures of plugins, of which those named in ``on_nodes`` read only nodes."""
    plugins: tuple[dict[Callable[[PodInfo], Signature | None], tuple[str, ...]], ...] = ({}, {})
    unsigned: set[str] = set()
    for step in steps:
        sign = step.reuse.signature
        if sign is None:
            unsigned.add(step.name)
        else:
            sharing = plugins[step.name not in on_nodes]
            sharing[sign] = (*sharing.get(sign, ()), step.name)
    nodes, rows = ([_Signing(names, sign) for sign, names in sharing.items()] for sharing in plugins)
    return _Signings(nodes, rows, frozenset(unsigned))


def _signature_of(signings: Sequence[_Signing], pod: PodInfo) -> tuple[dict[str, Hashable], tuple[str, ...]]:
    """Return all signatures of a pod in one, and the plugins that do not sign it."""
    found: dict[str, Hashable] = {}
    without: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    try:
        for plugins, sign in signings:
            signature = sign(pod)
            if signature:
                found.update(signature)
            elif signature is None:
                without += plugins
    except Exception as error:
        raise PluginError(plugins[0], f"failed in signature: {failure_text(error)}") from error
    return found, without
