"""Facts about objects become records of a log.

An object is written as scheduling reads it. A new version of an object without any other change takes a few bytes. Times never
go back: if the time of day is set back, the log goes on by the clock that never goes back, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moorage.api.custom_objects import CustomKind, CustomObject
from moorage.api.kinds import KIND_OF_TYPE
from moorage.api.meta import Object
from moorage.basis.inputs.cleaned_objects import ObjectCleaner
from moorage.basis.inputs.components import MADE_FOR_LOGS
from moorage.basis.recording.frames import Dropped, Mark, Put, Touched
from moorage.basis.recording.log_reader import STARTED
from moorage.basis.recording.log_writer import LogWriter, SnapshotWriter
from moorage.core.engine.facts import Gone, Seen

#: How many objects of a snapshot are written in one step.
_STEP: Final = 200
#: A difference between two clocks from which on the time of day was set.
_SET_S: Final = 1.0
_encode = msgspec.json.Encoder().encode


class ObjectEncoder:
    """Writes objects as scheduling reads them. ``kept`` names annotations to keep in addition."""

    def __init__(self, kept: Iterable[str] = ()) -> None:
        self._cleaner = ObjectCleaner(kept)

    def key(self, obj: Object) -> str:
        """Return the key of an object: ``namespace/name``."""
        return obj.key

    def json(self, obj: Object) -> bytes:
        """Return the JSON without resource version; b"" for an object that must not be written."""
        if isinstance(obj, CustomObject):
            return _encode(self.custom(obj))
        kind = KIND_OF_TYPE[type(obj)]
        bare = replace(obj, metadata=replace(obj.metadata, resource_version=""))
        return self._cleaner.json(kind, kind.api_version, bare)

    def custom(self, obj: CustomObject) -> dict[str, Any]:
        """Return an object of a custom kind as it is written, without resource version."""
        document = obj.document
        if type(obj) in MADE_FOR_LOGS:
            return dict(document)
        made = self._cleaner.custom(document["apiVersion"], document["kind"], document)
        made["metadata"] = {name: value for name, value in made["metadata"].items() if name != "resourceVersion"}
        return made

    def learn(self, obj: Object) -> None:
        """Look at an object of the first lists, before any is written."""

    def facts(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts of a comparison as they may be written."""
        return dict(facts)


def kind_in_log(obj: Object) -> str | None:
    """Return how a log names the kind of an object: those that are none of Kubernetes' own by plural and group."""
    if not isinstance(obj, CustomObject):
        found = KIND_OF_TYPE.get(type(obj))
        return None if found is None else found.name
    kind = CustomKind.parse(obj.resource)
    assert kind is not None
    return f"{kind.plural}.{kind.group}"


class LogClock:
    """The time of a log in microseconds since 1970.

    ``ahead_s``: by how much it is ahead of the time of day, which was set back
    ``now_ns`` gives the time of day, ``monotonic`` seconds that never go back. No time is before ``last``.
    """

    def __init__(self, now_ns: Callable[[], int], monotonic: Callable[[], float], last: int = 0) -> None:
        self._now_ns, self._monotonic = now_ns, monotonic
        self.last, self._measured = last, monotonic()
        #: By how many seconds the time of day was set since it was last read; 0 if it was not.
        self.set_by_s = 0.0
        self._wall = now_ns() // 1000
        self.ahead_s = max(0.0, (last - self._wall) / 1e6)

    def __call__(self) -> int:
        wall, measured = self._now_ns() // 1000, self._monotonic()
        passed = round((measured - self._measured) * 1e6)
        moved_s = (wall - self._wall - passed) / 1e6
        self.set_by_s += moved_s if abs(moved_s) > _SET_S else 0.0
        self.last = max(wall, self.last + max(passed, 1))  # no two records have the same time
        self.ahead_s = (self.last - wall) / 1e6
        self._wall, self._measured = wall, measured
        return self.last


class ChangeRecorder:
    """Writes facts into a log. Until ``start``, it collects the objects of the first lists.

    ``counts``: how many records of each sort were written
    """

    def __init__(self, writer: LogWriter, clock: LogClock, encoder: ObjectEncoder) -> None:
        self.writer, self.clock, self.encoder = writer, clock, encoder
        #: Objects by kind and key, with the hash of their JSON.
        self._known: dict[tuple[str, str], tuple[Object, int]] = {}
        #: True once the first snapshot is written: from then on, every change is.
        self.has_started = False
        self._snapshot: Iterator[None] | None = None
        self._marks: dict[str, Mark] = {}
        self.counts = {"put": 0, "touched": 0, "deleted": 0, "snapshots": 0}

    def __len__(self) -> int:
        return len(self._known)

    def observe(self, fact: Seen | Gone) -> None:
        """Write a change."""
        obj = fact.obj
        kind = kind_in_log(obj)
        if kind is None:
            return
        own = obj.key
        known, before = self._known.get((kind, own), (obj, None))
        if isinstance(fact, Gone) or (isinstance(obj, CustomObject) and not obj.document):
            if self._known.pop((kind, own), None) is not None and self.has_started:
                self.counts["deleted"] += 1
                self.writer.append(Dropped(self._time(), kind, self.encoder.key(obj)))
            return
        if not self.has_started:
            self._known[kind, own] = obj, 0
            self.encoder.learn(obj)
            return
        body, version = self.encoder.json(obj), obj.metadata.resource_version
        digest = hash(body)
        self._known[kind, own] = obj, digest
        is_same = before == digest
        if not body or (is_same and known.metadata.resource_version == version):
            return
        self.counts["touched" if is_same else "put"] += 1
        at, key = self._time(), self.encoder.key(obj)
        self.writer.append(Touched(at, kind, key, version) if is_same else Put(at, kind, key, version, body))

    def mark(self, what: str, facts: Mapping[str, Any], *, last: bool = False) -> None:
        """Write a remark. ``last``: snapshots repeat the last one of its sort."""
        mark = Mark(self._time(), what, dict(facts))
        if last:
            self._marks[what] = mark
        self.writer.append(mark)

    def _time(self) -> int:
        at = self.clock()
        if self.clock.set_by_s and self.has_started:
            set_by_s, self.clock.set_by_s = self.clock.set_by_s, 0.0
            self.writer.append(Mark(at, "clock", {"setBySeconds": round(set_by_s, 3), "aheadSeconds": self.clock.ahead_s}))
        return at

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def start(self, facts: Mapping[str, Any]) -> None:
        """Write the first snapshot, when all kinds are listed. ``facts`` describe the cluster and the recorder."""
        at = self.clock()
        mark = self._marks[STARTED] = Mark(at, STARTED, {**facts, "after": self.writer.last_at})
        for _ in self._written(self.writer.begin_snapshot(at), at):
            pass
        self.has_started = True
        self.writer.append(mark)
        self.writer.flush()

    def turn(self) -> bool:
        """Write what waits and a step of a snapshot that is due. Return whether there is more to do at once.

        Raises  OSError
        """
        if not self.has_started:
            return False
        at = self.clock()
        self.writer.flush()
        if self._snapshot is None and self.writer.wants_snapshot(at):
            self._snapshot = self._written(self.writer.begin_snapshot(at), at)
        if self._snapshot is not None and next(self._snapshot, self) is self:
            self._snapshot = None
        return self._snapshot is not None

    def _written(self, snapshot: SnapshotWriter, at: int) -> Iterator[None]:
        """Write the objects as they are now, step by step."""
        objects, known = list(self._known.items()), self._known
        try:
            snapshot.add([*self._marks.values()])
            for start in range(0, len(objects), _STEP):
                part = []
                for (kind, own), (obj, digest) in objects[start : start + _STEP]:
                    body = self.encoder.json(obj)
                    if not digest:
                        known[kind, own] = obj, hash(body)
                    if body:
                        part.append(Put(at, kind, self.encoder.key(obj), obj.metadata.resource_version, body))
                snapshot.add(part)
                yield
        except BaseException:
            snapshot.drop()
            raise
        snapshot.finish()
        self.counts["snapshots"] += 1

    def close(self) -> None:
        """Write what waits, and release the log.

        Raises  OSError
        """
        if self._snapshot is not None:
            self._snapshot.close()  # type: ignore[attr-defined]
        self.writer.close()
