"""Find a pod's class: the signatures of all plugins, as one key that is quick to compare.

A dozen signatures cost more than a decision. Most follow from the pod's shape, so ``Signer`` caches them by shape. A plugin
whose signature also depends on objects (device classes, say) names their kinds, and a change of one clears the cache. A plugin
that names no kinds signs every pod.

Plugins that read other pods run for each pod of a class, unless they are idle: a plugin may declare that it has no effect on
pods of a shape until a log that it names changes (``Idle``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Final, NamedTuple

from moorage.errors import PluginError
from moorage.framework.plugin_failures import failure_text
from moorage.framework.plugin_runner import ask
from moorage.framework.profile import Step
from moorage.framework.reuse import Idle, Signature, Versioned
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["KnownShape", "Signed", "Signer"]

_OWN: Final = "moorage."
#: Shapes cached; the cache is cleared when it is full.
_CAPACITY = 4096


class Signed(NamedTuple):
    """A pod's class, the plugins that run for each of its pods, and the part of its key by plugins that read only nodes."""

    key: Hashable
    asked: frozenset[str]
    on_nodes: Hashable = ()


class _Signing(NamedTuple):
    """A plugin's signature, and whether the plugin reads only nodes."""

    plugin: str
    signature: Callable[[PodInfo], Signature | None] | None
    reads_nodes: bool


class KnownShape(NamedTuple):
    """The first pod of a shape, which shares its computed values with later ones, and its class.

    The class is valid while none of the logs in ``stands_while`` has moved from its position.
    """

    first: PodInfo
    signed: Signed
    stands_while: tuple[tuple[Versioned, int], ...]

    def stands(self) -> bool:
        for log, position in self.stands_while:  # noqa: SIM110 (a generator costs more than the comparing)
            if log.position != position:
                return False
        return True


class Signer:
    """Signs pods for the plugins of one profile.

    ``always_asked`` are the plugins whose signatures are not used; ``on_nodes`` are those that read only nodes.
    """

    def __init__(self, steps: Collection[Step], always_asked: frozenset[str], on_nodes: frozenset[str] = frozenset()) -> None:
        signing = [step for step in steps if step.name not in always_asked]
        self._always_asked = always_asked
        self._on_nodes = on_nodes
        self._by_shape = [self._signing(step) for step in signing if step.reuse.signature_reads is not None]
        self._each = [self._signing(step) for step in signing if step.reuse.signature_reads is None]
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

    @property
    def signs_each(self) -> bool:
        """Return whether a plugin signs every pod, so that pods of one shape may belong to different classes."""
        return bool(self._each)

    def known(self, shape: bytes) -> KnownShape | None:
        """Return what is cached for a shape."""
        return self._known.get(shape)

    def sign(self, pod: PodInfo, snapshot: Snapshot) -> Signed:
        """Return the pod's class.

        Raises  TypeError for a signature that cannot be hashed
        """
        if self._kinds:
            positions = [snapshot.changes_of(kind).position for kind in self._kinds]
            if positions != self._positions:
                self._known.clear()
                self._positions = positions
        claims = self._skips_claims and pod.names_claims
        shape = pod.shape_without_claims() if claims else pod.shape()
        known = self._known.get(shape)
        if known is not None:
            pod.share(known.first)
            if not claims:
                pod.merge(known.first)
        if known is None or not known.stands():
            known = self._known[shape] = self._first_look(pod, snapshot)
        signed = known.signed
        return self._numbered(self._signed(self._each, pod, signed)) if self._each else signed

    def _first_look(self, pod: PodInfo, snapshot: Snapshot) -> KnownShape:
        if len(self._known) >= _CAPACITY:
            self._known.clear()
        idle, logs = self._idle(pod, snapshot)
        signed = self._numbered(self._signed(self._by_shape, pod, Signed((), self._always_asked - idle)))
        return KnownShape(pod, signed, tuple({id(log): (log, log.position) for log in logs}.values()))

    def _idle(self, pod: PodInfo, snapshot: Snapshot) -> tuple[set[str], list[Versioned]]:
        """Return the plugins that are idle for the pod's shape, and the logs whose next change ends that."""
        idle: set[str] = set()
        logs: list[Versioned] = []
        for step in self._may_idle:
            answer: Idle = ask(step, "idle", pod, snapshot)
            if answer.now:
                idle.add(step.name)
            logs += answer.until
        return idle, logs

    def _numbered(self, signed: Signed) -> Signed:
        """Replace the key by a number. Numbers are never reused, so old ones may be dropped."""
        number = self._numbers.get(signed.key)
        if number is None:
            if len(self._numbers) >= _CAPACITY:
                self._numbers.clear()
                self._known.clear()
            self._given += 1
            number = self._numbers[signed.key] = self._given
        return signed._replace(key=number)

    def _signing(self, step: Step) -> _Signing:
        return _Signing(step.name, step.reuse.signature, step.name in self._on_nodes)

    def _signed(self, steps: Iterable[_Signing], pod: PodInfo, before: Signed) -> Signed:
        """Add the signatures of these plugins to ``before``."""
        asked = before.asked
        on_nodes: dict[str, Hashable] = {}
        on_rows: dict[str, Hashable] = {}
        for name, sign, reads_nodes in steps:
            try:
                signature = None if sign is None else sign(pod)
            except Exception as error:
                raise PluginError(name, f"failed in signature: {failure_text(error)}") from error
            if signature:
                (on_nodes if reads_nodes else on_rows).update(signature)
            elif signature is None:
                asked = asked | {name}
        key = before.on_nodes, tuple(on_nodes.items()), asked
        return Signed((before.key, tuple(on_rows.items()), key), asked, key)
