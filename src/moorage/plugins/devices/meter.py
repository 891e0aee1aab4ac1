"""What the selectors of one attempt may cost.

A selector is evaluated for each device that it has not judged yet, and kube-scheduler allows each evaluation a million units,
which takes a second here. All other pods wait meanwhile. So an attempt has an account. What a selector of ordinary length costs
is free, as it is no more than looking at the device costs; what goes beyond is paid for, and where the account is empty the
attempt ends with an error. It is counted in CEL's units of cost, never in seconds: equal clusters come to equal ends on every
machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from moorage.cel import CompiledSelector

__all__ = ["ATTEMPT_COST", "FREE_CHARACTERS", "FREE_COST", "CostlyError", "Meter", "Selectors"]

#: What all selectors of an attempt may cost together, in CEL's units; at one to three microseconds each.
ATTEMPT_COST: Final = 20_000
#: What each evaluation may cost for nothing.
FREE_COST: Final = 100
#: How long an expression may be that is compiled for nothing; each character beyond costs one unit.
FREE_CHARACTERS: Final = 256
#: Expressions that are kept.
_CAPACITY: Final = 4096

_TOO_COSTLY: Final = (
    "CEL runtime error: operation cancelled: actual cost limit exceeded: "
    f"the selectors of a pod may cost {ATTEMPT_COST} in one attempt, beyond {FREE_COST} for each device"
)


class CostlyError(Exception):
    """A selector that costs more than an attempt has left; ``always``: more than any attempt has."""

    def __init__(self, *, always: bool) -> None:
        super().__init__(_TOO_COSTLY)
        self.always = always


class Selectors:
    """Compiled selectors by expression, and whether attributes may be lists; a text where one does not compile."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool], CompiledSelector | str] = {}

    def get(self, expression: str, lists: bool) -> CompiledSelector | str | None:
        return self._known.get((expression, lists))

    def keep(self, expression: str, lists: bool, selector: CompiledSelector | str) -> None:
        if len(self._known) >= _CAPACITY:
            self._known.clear()
        self._known[expression, lists] = selector


class Meter:
    """The account of one attempt. ``selectors`` are shared by all attempts."""

    def __init__(self, selectors: Selectors | None = None) -> None:
        self.selectors = Selectors() if selectors is None else selectors
        self._left = ATTEMPT_COST

    @property
    def limit(self) -> int:
        """What the next evaluation may cost."""
        return FREE_COST + self._left

    @property
    def is_full(self) -> bool:
        """True while nothing has been spent: what is too much now is too much in every attempt."""
        return self._left == ATTEMPT_COST

    def pay_evaluation(self, cost: int) -> None:
        """Account for an evaluation that cost no more than ``limit``."""
        self._left -= max(0, cost - FREE_COST)

    def pay_compilation(self, characters: int) -> None:
        """Account for an expression that is about to be compiled.

        Raises  CostlyError
        """
        cost = max(0, characters - FREE_CHARACTERS)
        if cost > self._left:
            raise CostlyError(always=cost > ATTEMPT_COST)
        self._left -= cost
