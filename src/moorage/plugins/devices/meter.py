"""A limit on the CEL cost of device selectors in one attempt.

A selector is evaluated for each device whose result is not cached. kube-scheduler allows each evaluation a million cost units,
which would take a second in Python while all other pods wait. So each attempt has an account. The cost of an ordinary selector
is free, as it is no more than the cost of examining the device; anything beyond is charged, and the attempt ends with an error
when the account is empty. The account counts CEL's cost units, not seconds, so the result is the same on every machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from moorage.api.cel import CompiledSelector
    from moorage.api.cel.list_attributes import Lists

#: The limit on the cost of all selectors of an attempt together, in CEL's units of one to three microseconds each.
ATTEMPT_COST: Final = 20_000
#: The free cost of each evaluation.
FREE_COST: Final = 100
#: Expressions up to this length compile for free; each further character costs one unit.
FREE_CHARACTERS: Final = 256
#: How many compiled expressions are cached.
_CAPACITY: Final = 4096

#: How the text about a selector that fails for a device starts.
RUNTIME_ERROR: Final = "CEL runtime error"
_TOO_COSTLY: Final = (
    f"{RUNTIME_ERROR}: operation cancelled: actual cost limit exceeded: "
    f"the selectors of a pod may cost {ATTEMPT_COST} in one attempt, beyond {FREE_COST} for each device"
)


class CostlyError(Exception):
    """A selector costs more than the attempt has left; ``always``: more than any attempt has."""

    def __init__(self, *, always: bool) -> None:
        super().__init__(_TOO_COSTLY)
        self.always = always


class Selectors:
    """Compiled selectors by expression and by what it makes of lists; an error text if one does not compile."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Lists], CompiledSelector | str] = {}

    def get(self, expression: str, lists: Lists) -> CompiledSelector | str | None:
        return self._known.get((expression, lists))

    def keep(self, expression: str, lists: Lists, selector: CompiledSelector | str) -> None:
        if len(self._known) >= _CAPACITY:
            self._known.clear()
        self._known[expression, lists] = selector


class Meter:
    """The account of one attempt. All attempts share ``selectors``."""

    def __init__(self, selectors: Selectors | None = None) -> None:
        self.selectors = Selectors() if selectors is None else selectors
        self._left = ATTEMPT_COST

    @property
    def limit(self) -> int:
        """The highest cost that the next evaluation may have."""
        return FREE_COST + self._left

    @property
    def is_full(self) -> bool:
        """True while nothing has been charged: a cost that is too high now is too high in every attempt."""
        return self._left == ATTEMPT_COST

    def pay_evaluation(self, cost: int) -> None:
        """Charge an evaluation that cost no more than ``limit``."""
        self._left -= max(0, cost - FREE_COST)

    def pay_compilation(self, characters: int) -> None:
        """Charge an expression before it is compiled.

        Raises  CostlyError
        """
        cost = max(0, characters - FREE_CHARACTERS)
        if cost > self._left:
            raise CostlyError(always=cost > ATTEMPT_COST)
        self._left -= cost
