"""The executor of the engine's work: binds, evictions, writes and plugins' own I/O, each piece of work in its own task.

A bind whose reply is lost may have succeeded. So after a failed bind the executor reads the pod back: if the pod is on the
wanted node, the bind succeeded, whatever the reply was. In the same way it reads a claim back before its devices are released.

Work can be cancelled. That ends waiting and a plugin's own I/O. It does not end a request that has been sent: the executor
waits for the reply, so that the API server cannot process the request after a later one that undoes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from moorage.api.core import Object, Pod, PodCondition
from moorage.core.binding.binding import Binding
from moorage.core.engine.facts import NO_LONGER_WANTED, Answered, BindsDone, Done, Gone, Phase, Query, Seen, Work, Wrote
from moorage.core.engine.scheduler import Scheduler
from moorage.core.extenders.wire import ExtenderError, check_bind_reply, shown
from moorage.errors import RAISED, ClusterError, MoorageError
from moorage.framework.effects import (
    Amend,
    BindPod,
    BindThrough,
    Call,
    Delete,
    Effect,
    Evict,
    Question,
    SetGroupCondition,
    Until,
    Write,
)
from moorage.live.runtime.bind_verifier import Confirmer
from moorage.live.runtime.inbox import Inbox
from moorage.live.runtime.ports import Clocks, ClusterWriter, Extenders, StatusChange
from moorage.live.runtime.status_writer import StatusWriter, in_seconds
from moorage.state.pod_info import PodInfo

T = TypeVar("T")

_GONE = {404, 409}
_READ_BACK_S = (0.1, 5.0)
#: Before a bind is sent again. Source  client-go, retry.DefaultBackoff, without its jitter
_BIND_PAUSES_S = (0.01, 0.05, 0.25)
_EVICTIONS_AT_ONCE = 16
#: The error of work that did not end before the scheduler did, and the interval at which its end is checked.
_BROKEN_OFF = "broken off while shutting down"
_DRAIN_LOOK_S = 0.01
#: The time after which a write that no watch has delivered may be lost; a watch delivers within a second.
_UNHEARD_S = 10.0


class NotLeadingError(MoorageError):
    """This scheduler no longer leads, so the request was not sent."""


class NoLongerWantedError(MoorageError):
    """The engine no longer wants the work, so its remaining effects are skipped."""


class EffectExecutor:
    """Executes work; each outcome goes to the inbox as a fact.

    ``may_act`` is called right before each bind and eviction. ``confirmer`` records each bind, eviction, and write with
    ``settled`` that the API server accepted. ``extenders`` answers the engine's questions to extenders. ``retries_binds``: see
    ``Release``.
    """

    def __init__(
        self, cluster: ClusterWriter, inbox: Inbox, status_writer: StatusWriter, clocks: Clocks,
        scheduler: Scheduler, confirmer: Confirmer, *, may_act: Callable[[float], bool],
        extenders: Extenders | None = None, retries_binds: bool = False,
    ) -> None:  # fmt: skip
        self._cluster, self._inbox, self._status_writer = cluster, inbox, status_writer
        self._clock, self._wall = clocks.monotonic, clocks.wall
        self._scheduler, self._confirmer = scheduler, confirmer
        self._may_act, self._extenders = may_act, extenders
        self._bind_pauses_s = _BIND_PAUSES_S if retries_binds else ()
        self._tasks: set[asyncio.Task[None]] = set()
        #: Binds that were sent without a task, by ticket.
        self._sent: dict[int, Work | Binding] = {}
        #: Binds that the API server has accepted, and whose outcome is not in the inbox yet.
        self._accepted: list[Work | Binding] = []
        self._questions: set[asyncio.Task[None]] = set()
        #: Tasks that may be cancelled, by ticket; and the tickets whose task was cancelled.
        self._breakable: dict[int, asyncio.Task[Any]] = {}
        self._broken: set[int] = set()
        #: The future outcome of each eviction under way, by the victim's UID; see ``_evict``.
        self._evictions: dict[str, asyncio.Future[bool | Exception]] = {}

    def __len__(self) -> int:
        """Return the number of pieces of work under way."""
        return len(self._tasks) + len(self._sent)

    def start(self, work: Work) -> None:
        """Start a piece of work. A nomination or a group's condition is only queued for writing, and has no outcome."""
        if work.phase is Phase.GROUP_STATUS:
            for effect in work.effects:
                if isinstance(effect, SetGroupCondition):
                    self._status_writer.say_of_group(effect.group, effect.condition)
            return
        if work.phase is Phase.EXPECT:
            self._status_writer.expect(work.pod.pod, work.node)
            return
        if not work.phase.is_answered:
            self._status_writer.change(work.pod.pod, StatusChange(nominated=work.node))
            return
        if work.phase is Phase.BIND and self._bind_soon(work):
            return
        self._start_task(work)

    def _start_task(self, work: Work, failed: ClusterError | None = None) -> None:
        name = f"{work.phase.value} {work.pod.key}"
        task = asyncio.get_running_loop().create_task(self._carry_out(work, failed), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- usual binds, without a task ---------------------------------------------------------------------------------------

    def bind_run(self, run: Sequence[Binding]) -> None:
        """Bind the pods that the fast lane placed together."""
        writer = self._status_writer
        if writer.is_quiet and self._send_binds(run):
            return
        for one in run:
            self.start(_bind_work(one))

    def _bind_soon(self, work: Work) -> bool:
        """Send the bind of DefaultBinder, if it needs no waiting. Return whether the work is under way or answered."""
        effect = work.effects[0]
        writer, uid = self._status_writer, work.pod.uid
        if len(work.effects) > 1 or not isinstance(effect, BindPod) or writer.is_writing(uid) or writer.expects(uid):
            return False
        if self._send_binds([work]):
            self._status_writer.forget(work.pod.uid)
            return True
        return False

    def _send_binds(self, works: Sequence[Work | Binding]) -> bool:
        """Send binds together, if that needs no waiting. Return whether they are under way or answered."""
        sent = {one.ticket: one for one in works if one.ticket is not None}
        self._sent.update(sent)
        binds = [(one.pod.pod, one.node) for one in works]
        if self._cluster.bind_soon(binds, self._check, partial(self._binds_answered, works)):
            return True
        for ticket in sent:
            del self._sent[ticket]
        return False

    def _binds_answered(self, works: Sequence[Work | Binding], which: Sequence[int], error: MoorageError | None) -> None:
        sent = self._sent
        ended = [one for one in [works[at] for at in which] if sent.pop(one.ticket or 0, None) is not None]
        if not ended:
            return  # they were broken off
        if error is None:
            if not self._accepted:
                asyncio.get_running_loop().call_soon(self._pass_on_accepted)
            self._accepted += ended
            return
        for work in map(_bind_work, ended):
            if isinstance(error, ClusterError):
                self._start_task(work, error)
            else:
                self._inbox.put_now(Done(work.ticket, str(error), 0))

    def _pass_on_accepted(self) -> None:
        """Pass on the binds that the API server has accepted: all that the loop has read since its last turn together."""
        accepted, self._accepted = self._accepted, []
        if accepted:
            self._end_binds([(one.pod, one.node) for one in accepted])
            self._inbox.put_now(BindsDone([one.ticket for one in accepted if one.ticket is not None]))

    def put(self, query: Query) -> None:
        """Send a question to an extender; its answer goes to the inbox."""
        name = f"{query.question.verb} {shown(query.question.url)}"
        task = asyncio.get_running_loop().create_task(self._put(query), name=name)
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)

    async def _put(self, query: Query) -> None:
        try:
            fact = Answered(query.ticket, await self._ask(query.question))
        except MoorageError as failed:
            fact = Answered(query.ticket, error=str(failed))
        except RAISED as failed:
            fact = Answered(query.ticket, error=f"{type(failed).__name__}: {failed}")
        self._inbox.put_now(fact)

    def break_off(self, ticket: int) -> None:
        """Cancel the waiting of a piece of work; its outcome still goes to the inbox."""
        task = self._breakable.get(ticket)
        if task is not None:
            self._broken.add(ticket)
            task.cancel()

    async def _ask(self, question: Question) -> bytes:
        if self._extenders is None:
            raise ClusterError(f'Post "{shown(question.url)}": no extender client is configured')
        return await self._extenders.ask(question)

    async def drain(self, patience_s: float) -> None:
        """Wait up to ``patience_s`` for work under way, then cancel the rest. Cancel open questions at once."""
        for question in self._questions:
            question.cancel()
        ends = self._clock() + patience_s
        while self._sent and self._clock() < ends:
            await asyncio.sleep(_DRAIN_LOOK_S)
        self._pass_on_accepted()
        for ticket in self._sent:
            self._inbox.put_now(Done(ticket, _BROKEN_OFF))
        self._sent.clear()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=max(0.0, ends - self._clock()))
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _carry_out(self, work: Work, failed: ClusterError | None = None) -> None:
        """Perform the effects up to the first that fails; for UNRESERVE, all of them.

        ``failed`` is the error of a bind that was sent already.
        """
        error: str | None = _BROKEN_OFF
        at = -1
        try:
            faults: list[str] = []
            if work.phase is Phase.PRE_BIND:  # other components learn the pod's node before anything is written for it
                await self._status_writer.sent(work.pod.uid)
            for effects in _at_once(work):
                if len(effects) == 1:
                    outcomes = [await self._attempted(effects[0], work, failed)]
                else:
                    outcomes = await asyncio.gather(*(self._attempted(effect, work) for effect in effects))
                if not faults and outcomes[0] is not None:
                    at = work.effects.index(effects[0])
                faults += [fault for fault in outcomes if fault is not None]
                if faults and work.phase is not Phase.UNRESERVE:
                    break
            error = "; ".join(faults) or None
        finally:
            self._inbox.put_now(Done(work.ticket, error, at))

    async def _attempted(self, effect: Effect, work: Work, failed: ClusterError | None = None) -> str | None:
        try:
            if failed is not None and isinstance(effect, BindPod):
                await self._finish_bind(effect, work, failed)
            else:
                self._insist(work)
                await self._perform(effect, work)
        except ClusterError as error:
            return f"{effect.what}: {error.said}" if isinstance(effect, Write | Amend) and effect.what else error.said
        except MoorageError as error:
            return str(error)
        except RAISED as error:  # a plugin's own I/O may raise anything
            return f"{type(error).__name__}: {error}"
        return None

    def _insist(self, work: Work) -> None:
        if not self._scheduler.is_wanted(work.ticket):
            raise NoLongerWantedError(NO_LONGER_WANTED)

    async def _perform(self, effect: Effect, work: Work) -> None:
        match effect:
            case BindPod(pod, node):
                await self._bind_itself(pod, node, self._bind_pauses_s)
            case BindThrough(pod, node, question):
                await self._bind(pod, node, lambda: self._bind_through(question), ())
            case Evict():
                await self._evict(effect)
            case Write(obj, subresource, base):
                base = base if base is not None else self._known(obj)
                await self._written(effect, self._cluster.write(base, obj, subresource, effect.made), made=base is None)
            case Amend(obj, change, subresource):
                await self._amend(effect, self._cluster.amend(obj, change, subresource))
            case Delete(obj):
                await self._delete(obj)
            case Call(run):
                await self._until_broken_off(_awaited(run), work)
            case Until():
                await self._wait(effect, work)

    def _known(self, obj: Object) -> Object | None:
        """Return the scheduler's copy of an object, by its key; None if it has none."""
        return self._scheduler.cluster.objects(type(obj)).get(obj.key)

    async def _until_broken_off(self, waiting: Coroutine[Any, Any, T], work: Work) -> T:
        """Await something that may be cancelled. A plugin sees ``CancelledError`` and may clean up."""
        ticket = work.ticket
        task: asyncio.Task[T] = asyncio.get_running_loop().create_task(waiting, name=f"waiting for {work.pod.key}")
        self._breakable[ticket] = task
        try:
            return await task
        except asyncio.CancelledError:
            if ticket in self._broken and task.done():
                raise NoLongerWantedError(NO_LONGER_WANTED) from None
            raise
        finally:
            del self._breakable[ticket]
            self._broken.discard(ticket)

    # -- binding ----------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if not self._may_act(self._clock()):
            raise NotLeadingError("not sent: the lease was not renewed in time")

    async def _bind_through(self, question: Question) -> None:
        check_bind_reply(await self._ask(question))

    async def _bind_itself(self, pod: PodInfo, node: str, pauses_s: Sequence[float]) -> None:
        await self._bind(pod, node, lambda: self._cluster.bind(pod.pod, node, self._check), pauses_s)
        self._confirmer.bound([(pod, node)])

    async def _bind(
        self, pod: PodInfo, node: str, send: Callable[[], Awaitable[None]], pauses_s: Sequence[float]
    ) -> None:  # fmt: skip
        """Send a bind, and again after each pause if an error may pass."""
        await self._status_writer.settle(pod.uid)
        for pause_s in (*pauses_s, None):
            self._check()
            try:
                await send()
            except (ClusterError, ExtenderError) as error:
                if pause_s is not None and isinstance(error, ClusterError) and error.passes:
                    await asyncio.sleep(pause_s)
                    continue
                # A proxy may have sent the answer, so only the pod itself says whether the bind happened.
                await self._read_back(pod, node, error)
            break
        self._status_writer.bound([(pod, node)])

    async def _finish_bind(self, effect: BindPod, work: Work, failed: ClusterError) -> None:
        """Continue after a bind that failed: send it again if the API server asks for that, else read the pod back."""
        if self._bind_pauses_s and failed.passes:
            first_s, *others_s = self._bind_pauses_s
            await asyncio.sleep(failed.retry_after_s or first_s)
            self._insist(work)
            await self._bind_itself(effect.pod, effect.node, others_s)
            return
        if failed.status == 401 or failed.retry_after_s is not None:
            await asyncio.sleep(failed.retry_after_s or 0.0)
            self._insist(work)
            await self._perform(effect, work)
            return
        await self._read_back(effect.pod, effect.node, failed)
        self._end_binds([(effect.pod, effect.node)])

    def _end_binds(self, binds: Sequence[tuple[PodInfo, str]]) -> None:
        self._status_writer.bound(binds)
        self._confirmer.bound(binds)

    async def _read_back(self, pod: PodInfo, node: str, error: ClusterError | ExtenderError) -> None:
        """Return if the pod is on the node after all, or if the engine no longer assumes it there.

        Raises  ClusterError that says where the pod is instead
        """
        # Only the pod itself, or its absence, shows the outcome of the bind.
        read = await _surely(
            lambda: self._cluster.read_pod(pod.namespace, pod.name), lambda: self._scheduler.cluster.is_assumed(pod.uid)
        )
        if not read:
            return
        found = read[0]
        if found is None or found.uid != pod.uid:
            self._inbox.put_now(Gone(pod.pod))
            text = f"bind {pod.key} to {node}: {error}; the pod is gone"
            raise ClusterError(text, 404, "NotFound", said=_said(error)) from error
        if found.spec.node_name == node:
            return
        where = "it is still on no node"
        if found.spec.node_name:
            self._inbox.put_now(Seen(found))
            where = f"it is already on {found.spec.node_name}"
        raise ClusterError(f"bind {pod.key} to {node}: {error}; {where}", said=_said(error)) from error

    # -- everything else ---------------------------------------------------------------------------------------------------

    async def _evict(self, effect: Evict) -> None:
        """Evict a victim; if an eviction of it is under way, wait for that one's outcome."""
        under_way = self._evictions.get(effect.victim.uid)
        goes = await (self._evict_for_all(effect) if under_way is None else asyncio.shield(under_way))
        if isinstance(goes, Exception):
            raise goes
        if goes:
            self._status_writer.preempted(effect)
            self._confirmer.evicted(effect.victim, effect.preemptor)

    async def _evict_for_all(self, effect: Evict) -> bool | Exception:
        """Evict a victim and share the outcome with all waiters: True if it is deleted, False if it was gone, or the error."""
        outcome: asyncio.Future[bool | Exception] = asyncio.get_running_loop().create_future()
        self._evictions[effect.victim.uid] = outcome
        try:
            outcome.set_result(await self._send_away(effect))
        except Exception as error:
            outcome.set_result(error)
        finally:
            del self._evictions[effect.victim.uid]
            outcome.cancel()  # for a cancelled task; has no effect on a future with a result
        return outcome.result()

    async def _send_away(self, effect: Evict) -> bool:
        """Set the condition DisruptionTarget, then delete the victim. Return False if it is gone or was deleted before."""
        victim = effect.victim.pod
        if self._confirmer.is_evicted(victim.uid):
            return False
        mark = PodCondition(
            type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message=effect.message,
            last_transition_time=in_seconds(self._wall()), observed_generation=victim.metadata.generation,
        )  # fmt: skip
        try:
            if not _is_marked(victim, mark):
                self._check()
                await self._cluster.patch_status(victim, StatusChange(mark))
            self._check()
            await self._cluster.delete_pod(victim)
        except ClusterError as error:
            if error.status not in _GONE:
                raise
            return False
        return True

    async def _amend(self, effect: Amend, writing: Awaitable[Object]) -> None:
        try:
            await self._written(effect, writing)
        except ClusterError as error:
            if error.status != 404 or not effect.or_gone:
                raise

    async def _written(self, effect: Write | Amend, writing: Awaitable[Object], *, made: bool = False) -> None:
        """Await a write. If it has ``settled``, report its outcome to the engine, even after an error."""
        if effect.settled is None:
            await writing
            return
        try:
            found: Object | None = await writing
        except MoorageError as error:
            if not isinstance(error, ClusterError) or error.sent:
                (found,) = await _surely(lambda: self._cluster.read(effect.obj)) or (None,)
                self._learn(found, effect.settled, made=made)
            raise
        self._learn(found, effect.settled, made=made)

    def _learn(self, found: Object | None, settled: Callable[[], None], *, made: bool) -> None:
        self._inbox.put_now(Wrote(found, settled, made))
        if found is not None:
            self._confirmer.wrote(found)

    async def _delete(self, obj: Object) -> None:
        try:
            await self._cluster.delete(obj)
        except ClusterError as error:
            if error.status != 404:
                raise

    async def _wait(self, effect: Until, work: Work) -> None:
        deadline = self._clock() + effect.timeout_s
        if effect.event is not None:
            self._status_writer.announce(work.pod.pod, *effect.event)
        try:
            while not await self._until_broken_off(self._is_met(effect, work, deadline), work):
                await self._write_again(effect.again)
        except NoLongerWantedError:
            binding = self._scheduler.binding_of(work.pod.uid)
            if effect.gone and binding is not None and binding.withdrawn and binding.verdict is None:
                raise MoorageError(effect.gone) from None
            raise

    async def _is_met(self, effect: Until, work: Work, deadline: float) -> bool:
        """Wait for the condition; return False after a time in which watches should have delivered the writes.

        Raises  ClusterError at the deadline
        """
        unheard = self._clock() + _UNHEARD_S
        while not effect.is_met():
            now = self._clock()
            if now >= deadline:
                raise ClusterError(f"{effect.what}: context deadline exceeded")
            if effect.again and now >= unheard:
                return False
            await asyncio.sleep(min(effect.every_s, deadline - now))
            self._insist(work)
        return True

    async def _write_again(self, writes: Sequence[Write]) -> None:
        """Repeat writes that succeeded but that no watch has delivered. If the API server still has a write, the repeat fails
        with a conflict and changes nothing."""
        for write in writes:
            if write.base is not None and self._known(write.obj) == write.base:
                with suppress(ClusterError):
                    await self._cluster.write(write.base, write.obj, write.subresource)


async def _surely(
    read: Callable[[], Awaitable[T | None]], matters: Callable[[], bool] = lambda: True
) -> tuple[T | None] | None:
    """Read an object, retrying until it succeeds; None in the tuple if there is none. Return None once it does not matter."""
    pause_s, longest_s = _READ_BACK_S
    while matters():
        try:
            return (await read(),)
        except ClusterError as error:
            await asyncio.sleep(max(pause_s, error.retry_after_s or 0.0))
        pause_s = min(pause_s * 2, longest_s)
    return None


def _bind_work(one: Work | Binding) -> Work:
    """Return the work of a bind."""
    if isinstance(one, Work):
        return one
    return Work(one.ticket or 0, Phase.BIND, one.pod, one.node, (BindPod(one.pod, one.node),))


async def _awaited(run: Callable[[], Awaitable[Any]]) -> None:
    await run()


def _said(error: ClusterError | ExtenderError) -> str:
    """Return the server's message if it rejected the bind; "" if the bind may have succeeded."""
    return error.said if isinstance(error, ClusterError) and not error.may_have_happened else ""


def _is_marked(pod: Pod, mark: PodCondition) -> bool:
    """Return whether the pod already has the condition; its time is ignored."""
    shown = (mark.type, mark.status, mark.reason, mark.message)
    return any((one.type, one.status, one.reason, one.message) == shown for one in pod.status.conditions)


def _at_once(work: Work) -> Iterator[Sequence[Effect]]:
    """Yield the effects in groups to perform at the same time: batches of evictions; the last effect is always alone."""
    if len(work.effects) == 1:
        yield work.effects
        return
    evictions = [effect for effect in work.effects[:-1] if isinstance(effect, Evict)]
    yield from ((effect,) for effect in work.effects[:-1] if not isinstance(effect, Evict))
    for start in range(0, len(evictions), _EVICTIONS_AT_ONCE):
        yield evictions[start : start + _EVICTIONS_AT_ONCE]
    yield work.effects[-1:]
