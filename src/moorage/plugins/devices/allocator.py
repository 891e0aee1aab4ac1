"""The device allocator: search one node for devices that satisfy all claims of a pod; the first combination wins.

The search tries claims, requests and devices in order and backtracks when it is stuck. Each step is a generator that hands the
steps below it to a loop, so deep nesting cannot overflow Python's stack. A budget of devices to examine bounds the work.

Some details match kube-scheduler. When a taint or a constraint rejects a device, the shared counters that it consumed stay
consumed for the rest of the search; for shared devices they do so even on backtracking. Up to 1.36 counters are keyed by pool
name alone, so pools of two drivers with the same name affect each other.

Source  kube-scheduler 1.36: structured/internal/incubating/allocator_incubating.go, Allocate, allocateOne, allocateDevice
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from moorage.api.quantity import QuantityError
from moorage.plugins.devices.allocated_devices import Ledger
from moorage.plugins.devices.claim_requests import MAX_RESULTS, Ask, AskError, ClaimAsk, ClaimRequest, DeviceGates, DeviceRules
from moorage.plugins.devices.constraints import AllocationConstraint
from moorage.plugins.devices.consumable_capacity import Amount, AmountError, consumed_by, fits
from moorage.plugins.devices.meter import Meter
from moorage.plugins.devices.pools import DeviceCandidate, DeviceId, NodePools, PoolId, SliceDevice

# Shared counters: partitions of one device consume the counters of the whole device.
#
# Source  kube-scheduler 1.36: structured/internal/incubating/allocator_incubating.go, checkAvailableCounters

_Counts = dict[str, dict[str, int]]
#: What counters are kept for: a pool, by its name or with its driver, or a slice.
_Place = str | PoolId


class Counters:
    """The counters left in each pool, and those consumed in one search. Keyed by ``_Place``: see ``allocator``.

    ``rules.charges_shares``    counters of devices that others hold by shares are in use
    ``rules.counts_by_driver``  pools of one name and two drivers have counters of their own
    ``compatibility``           devices on the same counters must agree in their compatibility groups
    """

    def __init__(self, ledger: Ledger, rules: DeviceRules, *, compatibility: bool = False) -> None:
        self._is_charged = ledger.is_used if rules.charges_shares else partial(ledger.is_held, shares=True)
        self._by_driver = rules.counts_by_driver
        self._compatibility = compatibility
        #: Place and counter set → the groups of each device on it, those in use before the search first.
        self._members: dict[tuple[_Place, str], list[frozenset[str]]] = {}
        self._left: dict[_Place, _Counts] = {}
        self._taken: dict[_Place, _Counts] = {}

    def take(self, candidate: DeviceCandidate) -> bool:
        """Consume the counters that a device needs; return False, and consume nothing, if there is too little left."""
        name = self._place(candidate)
        left = self._left.get(name)
        if left is None:
            left = self._left[name] = self._left_for(candidate)
        taken = self._taken.setdefault(name, {})
        for set_name, counters in candidate.offer.counters.items():
            in_set = taken.setdefault(set_name, {})
            for counter, amount in counters.items():
                in_set[counter] = in_set.get(counter, 0) + amount
        grouped = _groups_of(candidate.offer) if self._compatibility else []
        if any(
            amount < taken.get(set_name, {}).get(counter, 0)
            for set_name, counters in left.items()
            for counter, amount in counters.items()
        ) or not all(_agree(self._members.get((name, set_name), ()), groups) for set_name, groups in grouped):
            self._give_back(candidate)
            return False
        for set_name, groups in grouped:
            self._members.setdefault((name, set_name), []).append(groups)
        return True

    def release(self, candidate: DeviceCandidate) -> None:
        """Undo a successful ``take``."""
        for set_name, groups in _groups_of(candidate.offer) if self._compatibility else ():
            self._members[self._place(candidate), set_name].remove(groups)
        self._give_back(candidate)

    def _give_back(self, candidate: DeviceCandidate) -> None:
        taken = self._taken.get(self._place(candidate), {})
        for set_name, counters in candidate.offer.counters.items():
            in_set = taken.setdefault(set_name, {})
            for counter, amount in counters.items():
                in_set[counter] = in_set.get(counter, 0) - amount

    def _place(self, candidate: DeviceCandidate) -> _Place:
        """Return what counters are kept for: a pool, or a slice where devices consume only the counters of their own."""
        if candidate.pool.by_slice is not None:
            return candidate.offer.source.metadata.name
        return candidate.pool.id if self._by_driver else candidate.pool.id[1]

    def _left_for(self, candidate: DeviceCandidate) -> _Counts:
        """Return the counters minus those of devices in use; below zero if these consume more than there is."""
        pool, source = candidate.pool, candidate.offer.source
        counter_sets, offers = pool.counter_sets, (*pool.offers, *pool.others)
        if pool.by_slice is not None:
            counter_sets = pool.by_slice[source.metadata.name]
            offers = tuple(offer for offer in offers if offer.source is source)
        left = {set_name: dict(counters) for set_name, counters in counter_sets.items()}
        for offer in offers:
            if offer.device.consumes_counters and self._is_charged(offer.id):
                for set_name, groups in _groups_of(offer) if self._compatibility else ():
                    self._members.setdefault((self._place(candidate), set_name), []).append(groups)
                for set_name, counters in offer.counters.items():
                    in_set = left.get(set_name, {})
                    for counter, amount in counters.items():
                        if counter in in_set:
                            in_set[counter] -= amount
        return left


def _groups_of(offer: SliceDevice) -> list[tuple[str, frozenset[str]]]:
    return [(use.counter_set, frozenset(use.compatibility_groups)) for use in offer.device.consumes_counters]


def _agree(members: Sequence[frozenset[str]], groups: frozenset[str]) -> bool:
    """Return whether a device of these groups may be used beside others: all share a group, or none has any.

    Source  structured/internal/experimental/compatibility_groups.go, admits
    """
    if not members or not members[0] or not groups:
        return not members or not (members[0] or groups)
    return bool(groups.intersection(*filter(None, members)))


INVALID_POOLS: Final = "invalid resource pools were encountered"
#: This many devices in use are skipped at the price of one that is examined.
SKIPPED_PER_EXAMINED: Final = 64
_NONE: Final[Mapping[str, int]] = {}


class BudgetError(Exception):
    """The search examined as many devices as its budget allows and stopped."""


class FlawedPoolsError(Exception):
    """The search found nothing, and some pools of the node are invalid."""


class DeviceChoice(NamedTuple):
    """A device chosen for a request. ``consumed``: the capacity that a share consumes, None for a device that is not shared."""

    ask: Ask
    offer: SliceDevice
    consumed: Mapping[str, Amount] | None


class FoundDevices(NamedTuple):
    """For each claim: the devices, and for each of its requests the ask that was satisfied (exact, or an alternative)."""

    devices: tuple[tuple[DeviceChoice, ...], ...]
    met: tuple[tuple[Ask, ...], ...]


class _Outcome(Enum):
    DONE = "done"
    STUCK = "stuck"
    #: Stuck because the claim would get more devices than a claim may have.
    TOO_MANY = "too many"


class _Position(NamedTuple):
    """A position in the search: the claim, the request, the alternative, and the index of the device within the request."""

    claim: int
    request: int = 0
    alternative: int = 0
    device: int = 0


class _DeviceDemand(NamedTuple):
    """An ask on this node: the number of devices, and the devices themselves if it wants all."""

    ask: Ask
    number: int
    all_of: tuple[DeviceCandidate, ...] = ()


_Step: TypeAlias = "Generator[_Step, _Outcome, _Outcome]"


class DeviceSearch:
    """One search, for one pod on one node. ``budget`` limits the devices examined, ``meter`` the cost of selectors."""

    def __init__(
        self, claims: Sequence[ClaimAsk], pools: NodePools, ledger: Ledger, options: DeviceGates, budget: int, meter: Meter
    ) -> None:
        self.examined = 0
        self._skipped = 0
        self._budget = budget
        self._claims = claims
        self._pools = pools
        self._ledger = ledger
        self._options = options
        self._meter = meter
        self._demands: dict[tuple[int, int, int], _DeviceDemand] = {}
        self._constraints: list[list[AllocationConstraint]] = []
        self._devices: list[list[DeviceChoice]] = [[] for _ in claims]
        #: By claim and device: whether it consumes counters, and whether it was shared before.
        self._undo: list[list[tuple[bool, bool]]] = [[] for _ in claims]
        self._chosen: dict[tuple[int, int], int] = {}
        self._taking: dict[DeviceId, set[int]] = {}
        self._sharing: dict[DeviceId, dict[str, int]] = {}
        self._counters = Counters(ledger, options.rules, compatibility=options.compatibility)

    def run(self) -> FoundDevices | None:
        """Return the devices found, or None.

        Raises  AskError, BudgetError, FlawedPoolsError
        """
        if self._pools.error:
            raise AskError(self._pools.error)
        for at in range(len(self._claims)):
            self._prepare(at)
        only = self._only_ask()
        if self._take_first(only) if only is not None else self._drive(self._next_claim(0)) is _Outcome.DONE:
            met = tuple(tuple(self._met(c, r) for r in range(len(ask.requests))) for c, ask in enumerate(self._claims))
            return FoundDevices(tuple(map(tuple, self._devices)), met)
        if self._pools.any_flawed:
            raise FlawedPoolsError(INVALID_POOLS)
        return None

    def _only_ask(self) -> Ask | None:
        """Return the ask of a pod that wants one device and has no choice between requests; None for any other."""
        if len(self._claims) != 1 or len(self._claims[0].requests) != 1 or self._claims[0].constraints:
            return None
        request = self._claims[0].requests[0]
        ask = request.asks[0]
        return None if request.has_alternatives or ask.takes_all or ask.number != 1 else ask

    def _take_first(self, ask: Ask) -> bool:
        """Take the first device that suits. For a pod that wants one device, this is the search by steps without the steps."""
        for candidate in self._pools.candidates:
            if self._in_use(ask, 0, candidate.offer):
                self._skip()
            elif (
                self._is_selected(ask, 0, candidate.offer)
                and self._has_room(ask, 0, candidate.offer)
                and self._take(_Position(0), ask, candidate, must=False)
            ):
                return True
        return False

    def _met(self, claim: int, request: int) -> Ask:
        return self._claims[claim].requests[request].asks[self._chosen.get((claim, request), 0)]

    @staticmethod
    def _drive(first: _Step) -> _Outcome:
        """Run a step and all the steps below it."""
        stack = [first]
        outcome: _Outcome | None = None
        while stack:
            try:
                below = stack[-1].send(outcome) if outcome is not None else next(stack[-1])
            except StopIteration as finished:
                stack.pop()
                outcome = finished.value
            else:
                stack.append(below)
                outcome = None
        assert outcome is not None
        return outcome

    # -- before the search ------------------------------------------------------------------------------------------------

    def _prepare(self, claim: int) -> None:
        """Compute how many devices each request of a claim wants on this node.

        Raises  AskError if the claim is invalid or requests more devices than a claim may have
        """
        asked = self._claims[claim]
        least = 0
        for at, request in enumerate(asked.requests):
            counts = []
            for alternative, ask in enumerate(request.asks):
                selecting = request.asks[0] if self._selects_as_first(request, alternative) else ask
                demand = self._demands[claim, at, alternative] = self._demand_of(ask, claim, selecting)
                counts.append(demand.number)
            wanted = min(counts, default=0)
            if self._options.rules.adds_up_requests and least + wanted > MAX_RESULTS:
                text = f"adding {wanted} devices exceeds the claim limit of {MAX_RESULTS}, with {least} already accounted for"
                raise AskError(f", request {request.name}: {text}", claim)
            least += wanted
        if least > MAX_RESULTS:
            raise AskError(f": number of requested devices {least} exceeds the claim limit of {MAX_RESULTS}", claim)
        if asked.constraint_fault:
            raise AskError(asked.constraint_fault, claim)
        options = self._options
        lists, each_device, any_device = options.list_constraints, options.rules.compares_devices, options.rules.all_distinct
        self._constraints.append(
            [
                AllocationConstraint(one, lists=lists, each_device=each_device, any_device=any_device)
                for one in asked.constraints
            ]
        )

    def _selects_as_first(self, request: ClaimRequest, alternative: int) -> bool:
        """Return whether kube-scheduler remembers what the first alternative selects as the answers of the second one."""
        return not self._options.rules.keeps_alternative and alternative == 1 and request.asks[0].takes_all

    def _demand_of(self, ask: Ask, claim: int, selecting: Ask) -> _DeviceDemand:
        """Return what an alternative wants; for all devices, those that ``selecting`` selects."""
        if ask.fault:
            raise AskError(ask.fault, claim)
        if not ask.takes_all:
            return _DeviceDemand(ask, ask.number)
        found: list[DeviceCandidate] = []
        for pool in self._pools.pools:
            if not pool.is_usable:
                state = "being updated" if pool.is_incomplete else "invalid"
                name = "/".join(pool.id)
                raise AskError(
                    f", request {ask.name}: asks for all devices, but resource pool {name} is currently {state}", claim
                )
            found += [
                DeviceCandidate(offer, pool)
                for offer in pool.offers
                if self._is_selected(selecting, claim, offer) and self._is_for_all(ask, claim, offer)
            ]
        return _DeviceDemand(ask, len(found), tuple(found))

    def _is_selected(self, ask: Ask, claim: int, offer: SliceDevice) -> bool:
        self._examine()
        return ask.takes(offer, claim, self._options, self._meter) and offer.id not in self._pools.excluded

    def _examine(self) -> None:
        self.examined += 1
        if self.examined > self._budget:
            raise BudgetError

    def _skip(self) -> None:
        """Skip a device in use. Skips are cheap, but count against the budget too, so that any search ends."""
        self._skipped += 1
        if not self._skipped % SKIPPED_PER_EXAMINED:
            self._examine()

    def _is_for_all(self, ask: Ask, claim: int, offer: SliceDevice) -> bool:
        """Return whether a request for all devices wants a device: if it is large enough, up to 1.36 if it has room."""
        if not self._options.rules.all_by_size:
            return self._has_room(ask, claim, offer)
        return self._fits(ask, offer, _NONE, _NONE, (claim, "checking capacity", offer.device.name))

    def _has_room(self, ask: Ask, claim: int, offer: SliceDevice, doing: str = "checking capacity") -> bool:
        """Return whether the device has the requested capacity left; shares of the device reduce it."""
        taken, being_taken = self._ledger.consumed(offer.id) or _NONE, self._sharing.get(offer.id, _NONE)
        return self._fits(ask, offer, taken, being_taken, (claim, doing, "/".join(offer.id)))

    def _fits(
        self, ask: Ask, offer: SliceDevice, taken: Mapping[str, int], being_taken: Mapping[str, int], why: tuple[int, str, str]
    ) -> bool:
        """Return whether a request fits; ``why``: the claim, and what is done with which device, for the text of an error.

        Raises  AskError if an amount cannot be right
        """
        if not self._options.consumable_capacity or not (ask.capacity or offer.device.capacity):
            return True
        try:
            return fits(ask.capacity, offer.device.capacity, taken, being_taken, self._options.amounts)
        except QuantityError:
            return False
        except AmountError as error:
            claim, doing, device = why
            raise AskError(f", request {ask.name}: {doing} for device {device}: {error}", claim) from None

    # -- the search -------------------------------------------------------------------------------------------------------

    def _next_claim(self, claim: int) -> _Step:
        if claim >= len(self._claims):
            return _Outcome.DONE
        return (yield self._next_request(claim, 0))

    def _next_request(self, claim: int, request: int) -> _Step:
        asked = self._claims[claim]
        if request >= len(asked.requests):
            outcome = yield self._next_claim(claim + 1)
            return _Outcome.STUCK if outcome is _Outcome.TOO_MANY else outcome
        if not asked.requests[request].has_alternatives:
            return (yield self._next_device(_Position(claim, request), 0))
        too_many = True
        for alternative in range(len(asked.requests[request].asks)):
            outcome = yield self._next_device(_Position(claim, request, alternative), 0)
            if outcome is _Outcome.TOO_MANY:
                continue
            too_many = False
            if outcome is _Outcome.DONE:
                self._chosen[claim, request] = alternative
                return outcome
        return _Outcome.TOO_MANY if too_many else _Outcome.STUCK

    def _next_device(self, at: _Position, start: int) -> _Step:
        """Find the next device of a request among the candidates from ``start`` on, then everything after it."""
        demand = self._demands[at[:3]]
        if demand.ask.takes_all and not demand.all_of:
            return _Outcome.STUCK
        if at.device >= demand.number:
            return (yield self._next_request(at.claim, at.request + 1))
        if len(self._devices[at.claim]) + demand.number - at.device > MAX_RESULTS:
            return _Outcome.TOO_MANY
        if demand.ask.takes_all:
            return (yield self._one_of_all(at, demand))
        return (yield self._any_device(at, demand.ask, start))

    def _one_of_all(self, at: _Position, demand: _DeviceDemand) -> _Step:
        candidate = demand.all_of[at.device]
        if not self._take(at, demand.ask, candidate, must=True):
            return _Outcome.STUCK
        alternative = at.alternative if self._options.rules.keeps_alternative else 0
        outcome = yield self._next_device(at._replace(alternative=alternative, device=at.device + 1), 0)
        if outcome is not _Outcome.DONE:
            self._release(at, demand.ask, candidate)
        return outcome

    def _any_device(self, at: _Position, ask: Ask, start: int) -> _Step:
        candidates = self._pools.candidates
        for index in range(start, len(candidates)):
            candidate = candidates[index]
            if self._in_use(ask, at.claim, candidate.offer):
                self._skip()
                continue
            if not self._is_selected(ask, at.claim, candidate.offer) or not self._has_room(ask, at.claim, candidate.offer):
                continue
            if not self._take(at, ask, candidate, must=False):
                continue
            again = self._options.rules.takes_shares_again and candidate.offer.shared
            outcome = yield self._next_device(at._replace(device=at.device + 1), index if again else index + 1)
            if outcome is _Outcome.DONE:
                return outcome
            self._release(at, ask, candidate)
            if outcome is _Outcome.TOO_MANY:
                return outcome
        return _Outcome.STUCK

    # -- single devices ---------------------------------------------------------------------------------------------------

    def _in_use(self, ask: Ask, claim: int, offer: SliceDevice) -> bool:
        taking = self._taking.get(offer.id)
        if ask.admin:
            return bool(taking) and claim in taking  # type: ignore[operator]  # not empty, so not None
        return bool(taking) or self._ledger.is_held(offer.id, self._options.consumable_capacity)

    def _take(self, at: _Position, ask: Ask, candidate: DeviceCandidate, *, must: bool) -> bool:
        """Take a device if nothing prevents it, and return whether it was taken.

        Raises  AskError if a constraint prevents it and the request needs this very device
        """
        offer, claim = candidate.offer, at.claim
        shared = self._options.consumable_capacity and offer.shared
        if self._in_use(ask, claim, offer) and not (ask.admin and shared):
            return False
        shares = shared and self._options.rules.shares_counters
        has_counters = shares and (self._is_shared(offer.id) or offer.id in self._sharing)
        reserves = bool(offer.device.consumes_counters) and not has_counters
        if offer.device.consumes_counters and not self._options.partitions:
            return False
        if reserves and not self._counters.take(candidate):
            return False
        if (self._options.taints and not ask.tolerates(offer)) or not self._constrained(claim, ask, offer, must=must):
            self._put_back(candidate, reserves)
            return False
        taking = self._taking.setdefault(offer.id, set())
        if not shared:
            taking.add(claim)
        if not self._has_room(ask, claim, offer, "rechecking capacity"):
            if self._options.rules.undoes_refusals:
                self._unconstrain(claim, ask)
                taking.discard(claim)
            self._put_back(candidate, reserves)
            return False
        self._undo[claim].append((reserves, offer.id in self._sharing))
        consumed = consumed_by(ask.capacity, offer.device.capacity, self._options.amounts) if shared else None
        if consumed is not None:
            totals = self._sharing.setdefault(offer.id, {})
            for name, amount in consumed.items():
                totals[name] = totals.get(name, 0) + amount.nano
        self._devices[claim].append(DeviceChoice(ask, offer, consumed))
        return True

    def _is_shared(self, device: DeviceId) -> bool:
        """Return whether a device has a share of an earlier pod; up to 1.36 one that consumes something."""
        bare = self._options.rules.bare_shares and self._ledger.has_shares(device)
        return bare or self._ledger.consumed(device) is not None

    def _put_back(self, candidate: DeviceCandidate, reserves: bool) -> None:
        """Release the counters of a refused device; up to 1.36.2 they stay consumed for the rest of the search."""
        if reserves and self._options.rules.undoes_refusals:
            self._counters.release(candidate)

    def _constrained(self, claim: int, ask: Ask, offer: SliceDevice, *, must: bool) -> bool:
        names = (ask.parent or ask.name, ask.name if ask.parent else "")
        constraints = self._constraints[claim]
        for at, constraint in enumerate(constraints):
            if constraint.add(*names, offer):
                continue
            if must:
                device = "/".join(offer.id)
                text = f"cannot add device {device} because a claim constraint would not be satisfied"
                raise AskError(f", request {ask.name}: {text}", claim)
            for other in constraints[:at]:
                other.remove(*names)
            return False
        return True

    def _unconstrain(self, claim: int, ask: Ask) -> None:
        for constraint in self._constraints[claim]:
            constraint.remove(ask.parent or ask.name, ask.name if ask.parent else "")

    def _release(self, at: _Position, ask: Ask, candidate: DeviceCandidate) -> None:
        offer, claim = candidate.offer, at.claim
        self._unconstrain(claim, ask)
        self._taking[offer.id].discard(claim)
        choice = self._devices[claim].pop()
        reserved, was_shared = self._undo[claim].pop()
        undoes = self._options.rules.undoes_refusals
        if reserved and (undoes or choice.consumed is None):
            self._counters.release(candidate)
        totals = self._sharing.get(offer.id)
        if choice.consumed is None or totals is None or not (choice.consumed or undoes):
            return
        for name, amount in choice.consumed.items():
            totals[name] -= amount.nano
        if not any(totals.values()) and not (undoes and was_shared):
            del self._sharing[offer.id]
