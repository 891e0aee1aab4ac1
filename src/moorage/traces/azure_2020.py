"""Azure 2020 (AzureTracesForPacking2020): requests for virtual machines in one zone over 14 days, an SQLite file.

Pods   table ``vm``: vmId, tenantId, vmTypeId, priority (0 high, 1 low), starttime, endtime (days; NULL: still there);
       table ``vmType``: vmTypeId, machineId, core, memory, hdd, ssd, nic (shares of a machine)
Nodes  none: sizes are shares of machine types. The nodes are as many machines of the most versatile type as you ask for
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from typing import Final

from moorage.errors import InputError
from moorage.simulator.trace import Trace
from moorage.traces.tasks import TaskTable, machine

__all__ = ["MACHINE_CPU_MILLI", "MACHINE_MEMORY", "read_azure_2020"]

#: The size of one machine; the trace has only shares. Thousandths of it are exact.
MACHINE_CPU_MILLI: Final = 64_000
MACHINE_MEMORY: Final = 512 << 30
_DAY_S: Final = 86_400.0
_PRIORITY: Final = {0: 1000, 1: 0}
#: The number of nodes if the caller gives none.
_NODES: Final = 100


def read_azure_2020(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace: a pod for each request that fits on the machine type that most requests fit on.

    Raises  InputError
    """
    del nodes
    if not os.path.isfile(pods):
        raise InputError(f"{pods}: No such file")
    try:
        with closing(sqlite3.connect(f"file:{pods}?mode=ro", uri=True)) as base:
            return _read(base, pods)
    except sqlite3.Error as error:
        raise InputError(f"{pods}: cannot be read as the SQLite file of this trace: {error}") from None


def _read(base: sqlite3.Connection, path: str) -> Trace:
    counts = Counter(dict(base.execute("SELECT vmTypeId, count(*) FROM vm GROUP BY vmTypeId")))
    shares: dict[int, dict[int, tuple[float, float]]] = {}
    for kind, where, core, memory in base.execute("SELECT vmTypeId, machineId, core, memory FROM vmType"):
        shares.setdefault(where, {})[kind] = (float(core or 0), float(memory or 0))
    if not shares:
        raise InputError(f"{path}: the table vmType is empty")
    chosen = max(sorted(shares), key=lambda one: sum(counts[kind] for kind in shares[one]))
    return _trace(base, chosen, shares[chosen], counts.total())


def _trace(base: sqlite3.Connection, chosen: int, sizes: Mapping[int, tuple[float, float]], whole: int) -> Trace:
    table = TaskTable()
    rows = base.execute("SELECT vmId, tenantId, vmTypeId, priority, starttime, endtime FROM vm ORDER BY starttime, vmId")
    for vm, tenant, kind, priority, start, end in rows:
        if kind not in sizes:
            continue
        core, memory = sizes[kind]
        begin = max(float(start), 0.0)  # machines from before the start arrive at the start
        table.add(
            f"vm-{vm}", begin * _DAY_S, None if end is None else max(float(end) - begin, 0.0) * _DAY_S,
            round(core * MACHINE_CPU_MILLI), round(memory * MACHINE_MEMORY), priority=_PRIORITY.get(priority, 0),
            labels=(("tenant", str(tenant)), ("type", str(kind))),
        )  # fmt: skip
    left_out = whole - len(table.builder)
    notes = [
        f"sizes are shares of machine type {chosen}, taken as 64 cores and 512 GiB; disks and network are left out",
        f"there are {_NODES} nodes of this type, a number of our own",
    ]
    if left_out:
        notes.append(f"{left_out} requests of types that machine type {chosen} does not offer left out")
    found = [machine(f"machine-{number:04}", MACHINE_CPU_MILLI, MACHINE_MEMORY) for number in range(_NODES)]
    return table.builder.finish(found, notes)
