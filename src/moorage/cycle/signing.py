"""Which class a pod belongs to: the signatures of all its rules, as one key that is quick to compare.

Asking a dozen rules to sign costs more than deciding. What most of them sign follows from the pod's shape, so it is worked out
once for each shape and remembered; a rule whose signature also hangs on objects (device classes, say) names their kinds, and
what is remembered goes when one of those changes. A rule that names nothing signs every pod itself.

Rules that look at other pods have to be asked about each pod of a class, unless they are idle: they may know that they have
nothing to say about pods of a shape until something changes that they can name.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import NamedTuple

from moorage.api.meta import Value
from moorage.errors import PluginError
from moorage.framework.points import AnyPlugin, Log
from moorage.framework.profile import Step, other_form
from moorage.framework.running import ask
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["Signed", "Signer"]

#: Shapes remembered; when there are more, all are forgotten.
_CAPACITY = 4096


class Signed(NamedTuple):
    """A pod's class, the plugins that have to be asked about each of its pods, and its class as far as rules on nodes go."""

    key: Hashable
    asked: frozenset[str]
    on_nodes: Hashable = ()


class _Shape(NamedTuple):
    """The first pod of a shape, which lends later ones what was worked out for it; its class, and what that hangs on.

    ``stands_while`` none of these logs has moved on from its position.
    """

    first: PodInfo
    signed: Signed
    stands_while: tuple[tuple[Log, int], ...]

    def stands(self) -> bool:
        for log, position in self.stands_while:  # noqa: SIM110 (a generator costs more than the comparing)
            if log.position != position:
                return False
        return True


class Signer:
    """Signs pods for the plugins of one profile. ``always_asked`` are those whose signatures do not count; ``on_nodes``, those
    that look at nodes alone.
    """

    def __init__(self, steps: Collection[Step], always_asked: frozenset[str], on_nodes: frozenset[str] = frozenset()) -> None:
        signing = [step for step in steps if step.name not in always_asked]
        self._always_asked = always_asked
        self._on_nodes = on_nodes
        self._by_shape = [step for step in signing if signs_by(step.plugin) is not None]
        self._each = [step for step in signing if signs_by(step.plugin) is None]
        self._kinds = sorted({kind for step in self._by_shape for kind in signs_by(step.plugin) or ()}, key=repr)
        self._positions: list[int] = []
        self._may_idle = [step for step in map(_idle_form, steps) if step is not None and step.name in always_asked]
        self._known: dict[bytes, _Shape] = {}
        #: Signatures, which may be long, by a number that stands for them.
        self._numbers: dict[Hashable, int] = {}
        self._given = 0

    def sign(self, pod: PodInfo, snapshot: Snapshot) -> Signed:
        """Return the pod's class.

        Raises  TypeError for a signature that cannot be hashed
        """
        if self._kinds:
            positions = [snapshot.changes_of(kind).position for kind in self._kinds]
            if positions != self._positions:
                self._known.clear()
                self._positions = positions
        shape = pod.shape()
        known = self._known.get(shape)
        if known is not None:
            pod.share(known.first)
        if known is None or not known.stands():
            known = self._known[shape] = self._first_look(pod, snapshot)
        signed = known.signed
        return self._numbered(self._signed(self._each, pod, signed)) if self._each else signed

    def _first_look(self, pod: PodInfo, snapshot: Snapshot) -> _Shape:
        if len(self._known) >= _CAPACITY:
            self._known.clear()
        idle, logs = set(), []
        for step in self._may_idle:
            if ask(step, "idle", pod, snapshot):
                idle.add(step.name)
            logs += step.plugin.idle_until(snapshot)
        signed = self._numbered(self._signed(self._by_shape, pod, Signed((), self._always_asked - idle)))
        return _Shape(pod, signed, tuple((log, log.position) for log in logs))

    def _numbered(self, signed: Signed) -> Signed:
        """Put a number in place of the key. Numbers are never used twice, so old ones may be forgotten."""
        number = self._numbers.get(signed.key)
        if number is None:
            if len(self._numbers) >= _CAPACITY:
                self._numbers.clear()
                self._known.clear()
            self._given += 1
            number = self._numbers[signed.key] = self._given
        return signed._replace(key=number)

    def _signed(self, steps: Iterable[Step], pod: PodInfo, before: Signed) -> Signed:
        """Add what these plugins sign to what others have signed."""
        asked = before.asked
        on_nodes: dict[str, Hashable] = {}
        on_rows: dict[str, Hashable] = {}
        for step in steps:
            try:
                signature = step.plugin.sign(pod)
            except Exception as error:
                raise PluginError(step.name, f"failed in sign: {type(error).__name__}: {error}") from error
            if signature is None:
                asked = asked | {step.name}
            elif signature:
                (on_nodes if step.name in self._on_nodes else on_rows).update(signature)
        key = before.on_nodes, tuple(on_nodes.items()), asked
        return Signed((before.key, tuple(on_rows.items()), key), asked, key)


def _idle_form(step: Step) -> Step | None:
    """Return a step for a plugin's ``idle``; None if it has none, or overrides just the methods that ``idle`` speaks for."""
    return other_form(step, "pre_filter", "idle") and other_form(step, "pre_score", "idle")


def signs_by(plugin: AnyPlugin) -> tuple[type[Value], ...] | None:
    """Return the kinds of objects that, beside the pod's shape, decide what a plugin signs; None if it does not say.

    Who overrides ``sign`` has to say so anew.
    """
    for cls in type(plugin).__mro__:
        if "sign" in cls.__dict__:
            kinds: tuple[type[Value], ...] | None = cls.__dict__.get("signs_by")
            return kinds
    return None
