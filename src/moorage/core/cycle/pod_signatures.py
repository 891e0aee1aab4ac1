"""Find a pod's class: the signatures of all plugins, as one key that is quick to compare.

A dozen signatures cost more than a decision. Most follow from the pod's shape, so ``Signer`` caches them by shape. A plugin
whose signature also depends on objects (device classes, say) names their kinds, and a change of one clears the cache. A plugin
that names no kinds signs every pod.

Plugins that read other pods run for each pod of a class, unless they are idle: a plugin may declare that it has no effect on
pods of a shape until a log that it names changes (``Idle``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from msgspec import Struct

from moorage.api.core import Pod, PodSpec
from moorage.errors import RAISED, PluginError
from moorage.framework.answer_forms import NOTHING_TO_DO, Idle, Versioned
from moorage.framework.plugin_runner import ask, failure_text
from moorage.framework.profile import Step
from moorage.framework.reuse import Signature
from moorage.state.journal import Journal
from moorage.state.view import PodInfo, Snapshot

_OWN: Final = "moorage."
#: Shapes cached, and numbers of signatures of plugins that read only nodes, and of all others.
_CAPACITY: Final = 1024
_NODES_KEPT: Final = 4096
_ROWS_KEPT: Final = 1024
#: More than there are groups of plugins with a signature of their own.
GROUPS: Final = 1024

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """What was used lately, by key: up to ``capacity`` entries, and those before them. None is no value."""

    __slots__ = ("_before", "_capacity", "now")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        #: The entries that were used last.
        self.now: dict[K, V] = {}
        self._before: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        found = self.now.get(key)
        if found is None and self._before:
            found = self._before.pop(key, None)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: K, value: V) -> None:
        if len(self.now) >= self._capacity:
            self._before, self.now = self.now, {}
        self.now[key] = value

    def setdefault(self, key: K, value: V) -> V:
        """Return the value of a key, which is ``value`` if it has none yet; the key is hashed once or twice."""
        found = self.now.setdefault(key, value)
        if found is value:
            before = self._before.pop(key, None)
            if before is not None:
                found = self.now[key] = before
            if len(self.now) > self._capacity:
                self._before, self.now = self.now, {}
        return found

    def pop(self, key: K) -> V | None:
        found = self.now.pop(key, None)
        return self._before.pop(key, None) if found is None and self._before else found

    def clear(self) -> None:
        self.now.clear()
        self._before.clear()


class Signed(Struct, eq=False):
    """The key of a pod, the plugins that run for each pod with it (``asked``), those with nothing to do, and column keys.

    ``nodes`` has the keys of plugins that read only nodes, each with their index in ``Signer.groups`` as its remainder by
    ``GROUPS``; ``rows`` is that of all other plugins; ``beside``: what signatures were added to. The caches of decisions keep
    in ``look`` what they derive from it, if it ``was_used`` before.
    """

    key: Hashable
    asked: frozenset[str]
    idle: frozenset[str]
    nodes: tuple[int, ...] = ()
    rows: Hashable = 0
    beside: Signed | None = None
    look: Any = None
    was_used: bool = False


class _Signing(NamedTuple):
    """A signature, the plugins that share it, and their index among all that read only nodes; -1 if they read more."""

    at: int
    plugins: tuple[str, ...]
    signature: Callable[[PodInfo], Signature | None]


class _Signings(NamedTuple):
    """The signatures of some plugins, and the plugins that have none."""

    signing: Sequence[_Signing]
    unsigned: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.signing or self.unsigned)


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


class KnownShape:
    """The first pod of a shape, which shares its computed values with later ones, and the keys of the shape."""

    __slots__ = ("_objects_changed", "_snapshot", "first", "logs", "merged", "signed")

    def __init__(self, first: PodInfo, signed: Signed, logs: Positions, snapshot: Snapshot) -> None:
        """``logs``: those of idle plugins; the keys hold while none moves on."""
        self.first, self.signed, self.logs = first, signed, logs
        self._snapshot, self._objects_changed = snapshot, snapshot.objects_changed
        #: The spec of the last pod that was merged with the first one.
        self.merged: PodSpec | None = None

    def holds(self, snapshot: Snapshot) -> bool:
        """Return whether nothing has changed that the keys depend on. False if another object may have changed them."""
        if self._objects_changed != snapshot.objects_changed or self._snapshot is not snapshot:
            return False
        for log, position in self.logs.of_pods:  # noqa: SIM110 (a generator costs more than comparing)
            if log.position != position:
                return False
        return True

    def stands(self, snapshot: Snapshot) -> bool:
        """Return whether no log of idle plugins has moved on. From then on it ``holds``."""
        stands = self.logs.stand()
        if stands:
            self._snapshot, self._objects_changed = snapshot, snapshot.objects_changed
        return stands

    def suits(self, pod: PodInfo) -> bool:
        """Return True for a pod of the shape that shares the spec and status objects of the first one."""
        first = self.first
        if pod.spec is not first.spec or pod.status is not first.status or pod.namespace != first.namespace:
            return False
        its, meta = first.pod.metadata, pod.pod.metadata
        return (
            pod.labels == first.labels
            and meta.owner_references == its.owner_references
            and meta.deletion_timestamp == its.deletion_timestamp
        )

    def share(self, pod: PodInfo) -> None:
        """Let a pod that it suits use the derived data of the first pod of the shape."""
        first = self.first
        known = first.__dict__
        if not first.spec.volumes or known.get("volumes", self) is None:  # as ``shares_all``, without a call
            pod.__dict__ = known
        else:
            pod.__dict__.update(first.facts_of_shape())

    def bound(self, pod: PodInfo, bound: Pod) -> PodInfo:
        """Return the info of the bound version of a pod that it suits, with the derived data of the first pod."""
        first = self.first
        info = PodInfo.__new__(PodInfo)
        info.pod, info.spec, info.uid, info.name = bound, bound.spec, pod.uid, pod.name
        info.namespace, info.labels = first.namespace, first.labels
        info.status, info.priority = first.status, first.priority
        info.__dict__ = first.__dict__ if first.shares_all else first.facts_of_shape()
        return info


class Signer:
    """Signs pods for the plugins of one profile.

    ``always_asked`` are the plugins whose signatures are not used; ``on_nodes`` are those that read only nodes.
    """

    def __init__(self, steps: Collection[Step], always_asked: frozenset[str], on_nodes: frozenset[str] = frozenset()) -> None:
        signing = [step for step in steps if step.name not in always_asked]
        self._always_asked = always_asked
        #: The plugins that read only nodes, by their signature.
        self.groups: list[tuple[str, ...]] = []
        self._by_shape = self._signings((step for step in signing if step.reuse.signature_reads is not None), on_nodes)
        #: Those of plugins that sign every pod, so that pods of one shape may belong to different classes.
        self.each = self._signings((step for step in signing if step.reuse.signature_reads is None), on_nodes)
        self._kinds = sorted({kind for step in signing for kind in step.reuse.signature_reads or ()}, key=repr)
        self._positions: list[int] = []
        self._logs: list[Journal] = []
        self._snapshot: Snapshot | None = None
        self._may_idle = [
            Step(step.name, step.plugin, step.reuse.idle)
            for step in steps
            if step.reuse.idle is not None and step.name in always_asked
        ]
        #: True if all plugins are built in: their signatures contain no names of claims. Then shapes are compared without these
        #: names, which differ from pod to pod.
        self._skips_claims = all(type(step.plugin).__module__.startswith(_OWN) for step in steps)
        #: True if signatures read only the spec, the status and the namespace: then pods that share these share signatures.
        self._skips_labels = self._skips_claims and not any(step.reuse.signature_reads_metadata for step in signing)
        self._known: Recent[bytes, KnownShape] = Recent(_CAPACITY)
        #: The last known shape by ``id()`` of the spec and status of its first pod, and its namespace.
        self._by_spec: dict[tuple[int, int, str], KnownShape] = {}
        #: Signature → the number that replaces it, since signatures may be long.
        self._nodes: Recent[Hashable, int] = Recent(_NODES_KEPT)
        self._rows: Recent[Hashable, int] = Recent(_ROWS_KEPT)
        self._given = 0
        #: What most shapes have in common: which plugins run for each pod and which idle, by name, and the last logs.
        self._beside: dict[tuple[str, ...], Signed] = {}
        self._unions: dict[tuple[frozenset[str], int], frozenset[str]] = {}
        self._last = Positions([])

    def sign(self, pod: PodInfo, snapshot: Snapshot) -> KnownShape:
        """Return the pod's shape with its keys.

        Raises  TypeError for a signature that cannot be hashed
        """
        if self._kinds:
            if self._snapshot is not snapshot:
                self._snapshot, self._logs = snapshot, [snapshot.changes_of(kind) for kind in self._kinds]
            positions = [log.position for log in self._logs]
            if positions != self._positions:
                self._known.clear()
                self._by_spec.clear()
                self._positions = positions
        claims = self._skips_claims and pod.names_claims
        shape = pod.shape_without_claims() if claims else pod.shape()
        known = self._known.get(shape)
        if known is not None:
            pod.share(known.first)
        if known is None or not known.stands(snapshot):
            known = self._first_look(pod, snapshot)
            self._known.put(shape, known)
        elif pod.spec is known.merged:  # pods that were decoded together share it
            known = KnownShape(pod, known.signed, known.logs, snapshot)
            self._known.put(shape, known)
        elif not claims and pod.spec is not known.first.spec:
            known.merged = pod.spec
            pod.merge(known.first)
        return KnownShape(pod, self._signed(self.each, pod, known.signed), known.logs, snapshot) if self.each else known

    def like_spec(self, pod: PodInfo, snapshot: Snapshot, among: Container[Hashable]) -> KnownShape | None:
        """Return the shape of a pod of the same spec as one with a key ``among``, without encoding the pod; None if unknown."""
        alike = self._by_spec.get((id(pod.spec), id(pod.status), pod.namespace))
        if alike is None or alike.signed.key not in among or not alike.holds(snapshot) or self.each:
            return None
        return self._first_look(pod, snapshot)

    def _first_look(self, pod: PodInfo, snapshot: Snapshot) -> KnownShape:
        idle: tuple[str, ...] = ()
        logs: list[Versioned] = []
        for step in self._may_idle:
            answer: Idle = ask(step, "idle", pod, snapshot)
            if answer.now:
                idle += (step.name,)
            logs += answer.until
        if not self._last.stand(logs):
            self._last = Positions(logs)
        beside = self._beside.get(idle)
        if beside is None:
            beside = self._beside[idle] = Signed(0, self._always_asked.difference(idle), frozenset(idle))
        parts = id(pod.spec), id(pod.status), pod.namespace
        alike, signed = self._by_spec.get(parts), None
        if alike is not None and alike.signed.beside is beside:
            first = alike.first
            if first.spec is pod.spec and first.status is pod.status:  # otherwise they were replaced by equal ones
                pod.__dict__.update(first.facts_of_spec())
                signed = alike.signed
        known = KnownShape(pod, signed or self._signed(self._by_shape, pod, beside), self._last, snapshot)
        if self._skips_labels:
            if len(self._by_spec) >= _CAPACITY:
                self._by_spec.clear()
            self._by_spec[parts] = known
        return known

    def _signed(self, signings: _Signings, pod: PodInfo, before: Signed) -> Signed:
        """Add signatures to ``before``."""
        nodes, asked = list(before.nodes), before.asked.union(signings.unsigned) if signings.unsigned else before.asked
        idle, bit = 0, 1
        on_rows: list[Hashable] = [before.rows]
        plugins: tuple[str, ...] = ()
        numbers = self._nodes.now
        try:
            for at, plugins, sign in signings.signing:
                signature = sign(pod)
                bit += bit
                if signature is NOTHING_TO_DO:
                    idle |= bit
                elif signature is None:
                    asked = asked.union(plugins)
                elif at >= 0:
                    key = (at, *signature.items())
                    nodes.append(numbers.get(key) or self._number(self._nodes, key, at))
                else:
                    on_rows += signature.items()
        except TypeError:
            raise
        except RAISED as error:
            raise PluginError(plugins[0], f"failed in signature: {failure_text(error)}") from error
        keys, rows = tuple(nodes), self._number(self._rows, (asked, *on_rows))
        if idle:
            idle_names = self._unions.get((before.idle, idle)) or self._united(before.idle, idle, signings.signing)
        else:
            idle_names = before.idle
        return Signed((before.key, asked, keys, rows), asked, idle_names, keys, rows, before)

    def _united(self, names: frozenset[str], idle: int, signing: Sequence[_Signing]) -> frozenset[str]:
        """Return the names with those of the plugins whose bits are set: most pods share them."""
        more = [one.plugins for at, one in enumerate(signing, 1) if idle >> at & 1]
        united = self._unions[names, idle] = names.union(*more)
        return united

    def _number(self, numbers: Recent[Hashable, int], key: Hashable, at: int = 0) -> int:
        """Return the number that stands for a key. Numbers are never reused, so old ones may be dropped."""
        fresh = (self._given + 1) * GROUPS + at
        number = numbers.setdefault(key, fresh)
        if number == fresh:
            self._given += 1
        return number

    def _signings(self, steps: Iterable[Step], on_nodes: frozenset[str]) -> _Signings:
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
        first = len(self.groups)
        self.groups += plugins[0].values()
        nodes = [_Signing(first + at, names, sign) for at, (sign, names) in enumerate(plugins[0].items())]
        return _Signings([*nodes, *(_Signing(-1, names, sign) for sign, names in plugins[1].items())], frozenset(unsigned))
