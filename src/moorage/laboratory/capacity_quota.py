"""Resource quotas while instances are counted: whether the API server would create one more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.meta import Object
from moorage.laboratory.present import cluster_input
from moorage.simulator.quotas import QuotaLedger, QuotaRoom, is_new

__all__ = ["InstanceQuotas", "quotas_of"]


class InstanceQuotas:
    """The quotas of a cluster with their usage. Instances of one template are counted, not charged one by one."""

    def __init__(self, ledger: QuotaLedger, *, alike: bool) -> None:
        self._ledger = ledger
        self._alike = alike
        self._room: QuotaRoom | None = None
        self._created = 0

    def refusal(self, pod: Pod, needs: Sequence[Object] = ()) -> str:
        """Return why the API server would not create a pod, or an object that it needs; "" if it would."""
        if self._alike and not needs:
            if self._room is None:
                self._room = self._ledger.room(pod)
            room = self._room
            if room.count is None or self._created < room.count or room.refused is None:
                return ""
            return replace(room.refused, name=pod.metadata.name).message
        trial = self._ledger.copy()
        refused = next((found for obj in (*needs, pod) if (found := trial.charge(obj)) is not None), None)
        return "" if refused is None else refused.message

    def take(self, pod: Pod, needs: Sequence[Object] = ()) -> None:
        """Count a pod that was created, with the objects that it needs."""
        self._created += 1
        if not self._alike or needs:
            for obj in (*needs, pod):
                self._ledger.charge(obj)


def quotas_of(objects: Iterable[Object], *, alike: bool) -> InstanceQuotas | None:
    """Return the quotas of a cluster, charged with its pending pods too; None without quotas. ``alike``: one template only."""
    given = cluster_input(objects)
    ledger = QuotaLedger.of(given)
    if not ledger:
        return None
    for pod in given.pods:
        if is_new(pod):
            ledger.charge(pod)
    return InstanceQuotas(ledger, alike=alike)
