"""The register of all bindings: those that Permit holds, those that proceed, and the work under way for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush, heapreplace

from moorage.core.binding.binding import Binding
from moorage.core.engine.facts import Phase
from moorage.core.queue.queued_pod import save_fields


class Bindings:
    """All bindings by pod UID, and the work that is under way for them.

    ``held``      bindings without work under way: Permit holds them, or they proceed at the next step
    ``by_ticket`` the phase and the pod's UID of each piece of work under way
    """

    def __init__(self) -> None:
        self.by_uid: dict[str, Binding] = {}
        self.held: dict[str, Binding] = {}
        self.by_ticket: dict[int, tuple[Phase, str]] = {}
        self._holds = 0
        #: Bindings that Permit holds, and that were neither allowed nor rejected since.
        self._waiting: dict[str, Binding] = {}
        #: Order and UID of bindings that proceed, as a heap. Entries whose binding is no longer held are skipped.
        self._proceeding: list[tuple[int, str]] = []
        #: Deadline, order and UID of bindings that wait, as a heap. Entries may be too early, or of no use any more.
        self._deadlines: list[tuple[float, int, str]] = []

    def hold(self, binding: Binding) -> None:
        """Register a binding that Permit holds."""
        uid = binding.pod.uid
        self._holds += 1
        binding.order = self._holds
        self.by_uid[uid] = self.held[uid] = self._waiting[uid] = binding
        heappush(self._deadlines, (binding.deadline, binding.order, uid))
        self.note(binding)

    def note(self, binding: Binding) -> None:
        """Note that a binding was allowed, rejected or preempted: if it is held, it proceeds at the next step."""
        uid = binding.pod.uid
        if self.held.get(uid) is binding and binding.proceeds:
            self._waiting.pop(uid, None)
            heappush(self._proceeding, (binding.order, uid))

    def begin_work(self, binding: Binding) -> None:
        """Register a binding whose work begins: it is held no longer."""
        self.by_uid[binding.pod.uid] = binding
        self._let_go(binding.pod.uid)

    def drop(self, binding: Binding) -> None:
        """Remove a binding. Answers to its work are ignored from now on."""
        uid = binding.pod.uid
        self.by_uid.pop(uid, None)
        self._let_go(uid)

    def _let_go(self, uid: str) -> None:
        if self.held.pop(uid, None) is None:
            return
        self._waiting.pop(uid, None)
        if not self.held:  # what the heaps still have is of no use
            self._proceeding.clear()
            self._deadlines.clear()

    def save(self) -> Callable[[], None]:
        """Return a function that restores all bindings and the work under way; takes time in proportion to the bindings."""
        by_uid, held, by_ticket = self.by_uid.copy(), self.held.copy(), self.by_ticket.copy()
        holds, waiting = self._holds, self._waiting.copy()
        proceeding, deadlines = self._proceeding.copy(), self._deadlines.copy()
        saved = [save_fields(one, ("waits", "patience")) for one in self.by_uid.values()]
        saved += [one.queued.save() for one in self.by_uid.values()]

        def restore() -> None:
            self.by_uid, self.held, self.by_ticket = by_uid, held, by_ticket
            self._holds, self._waiting = holds, waiting
            self._proceeding, self._deadlines = proceeding, deadlines
            for undo in saved:
                undo()

        return restore

    def waiting(self) -> list[Binding]:
        """Return the bindings that Permit holds, in the order they arrived."""
        return list(self._waiting.values())

    @property
    def has_waiting(self) -> bool:
        """True if Permit holds a pod."""
        return bool(self._waiting)

    def due(self, now: float) -> Iterator[Binding]:
        """Yield the held bindings that proceed or whose deadline is over, in the order in which they were held.

        The caller ends each, or lets it continue. One that becomes due meanwhile is among them if its turn has not passed.
        """
        self._drop_stale()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, order, uid = heappop(self._deadlines)
            heappush(self._proceeding, (order, uid))
            self._drop_stale()
        last, turn, passed = self._holds, 0, list[Binding]()
        while self._proceeding and self._proceeding[0][0] <= last:
            order, uid = heappop(self._proceeding)
            binding = self._held_as(order, uid)
            if binding is None:
                continue
            passed.append(binding)
            if order <= turn or (not binding.proceeds and binding.deadline > now):
                continue
            turn = order
            try:
                yield binding
            except GeneratorExit:
                break
        for binding in passed:
            if self._held_as(binding.order, binding.pod.uid) is binding:
                if binding.waits:
                    heappush(self._deadlines, (binding.deadline, binding.order, binding.pod.uid))
                self.note(binding)

    def next_deadline(self, now: float) -> float | None:
        """Return the time from which ``due`` yields a binding; None if none is held."""
        self._drop_stale()
        soonest = self._deadlines[0][0] if self._deadlines else None
        if self._proceeding:
            return now if soonest is None else min(now, soonest)
        return soonest

    def _held_as(self, order: int, uid: str) -> Binding | None:
        """Return the binding that was held as this one of all, if it still is."""
        binding = self.held.get(uid)
        return binding if binding is not None and binding.order == order else None

    def _drop_stale(self) -> None:
        """Drop the first entries of the heaps as long as they are of no use, and correct deadlines that are too early."""
        proceeding, deadlines = self._proceeding, self._deadlines
        while proceeding and self._held_as(*proceeding[0]) is None:
            heappop(proceeding)
        while deadlines:
            deadline, order, uid = deadlines[0]
            binding = self._held_as(order, uid)
            if binding is None or binding.proceeds:
                heappop(deadlines)
            elif binding.deadline > deadline:
                heapreplace(deadlines, (binding.deadline, order, uid))
            else:
                return

    def phase_of(self, binding: Binding) -> Phase | None:
        """Return the phase of the work under way for a pod; None while Permit holds it."""
        return None if binding.ticket is None else self.by_ticket[binding.ticket][0]

    def is_wanted(self, ticket: int) -> bool:
        """Return True if the result of this work still matters. Unreserve, evictions and nominations always do."""
        phase, uid = self.by_ticket.get(ticket, (None, ""))
        if phase is None or phase is Phase.UNRESERVE:
            return True
        binding = self.by_uid.get(uid)
        return binding is not None and binding.ticket == ticket and binding.wanted
