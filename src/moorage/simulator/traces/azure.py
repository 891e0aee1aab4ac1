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
from moorage.simulator.traces.streams import TraceRow, table_rows
from moorage.simulator.traces.task_tables import TaskTable, machine

# Azure 2019 (AzurePublicDatasetV2): 2.7 million virtual machines of one region over 30 days.
#
# Pods   ``vmtable.csv``, no header: vm id, subscription id, deployment id, created (s), deleted (s), max cpu, avg cpu, p95 max
#        cpu, category, core count bucket, memory bucket (GB)
# Nodes  not published: give nodes of your own

_VMS: Final = (
    "vmid", "subscriptionid", "deploymentid", "vmcreated", "vmdeleted", "maxcpu", "avgcpu", "p95maxcpu", "vmcategory",
    "vmcorecountbucket", "vmmemorybucket",
)  # fmt: skip
#: The last bucket is open: ``>24`` cores, ``>64`` GB. The next usual size stands for it.
_OPEN: Final = {"vmcorecountbucket": {">24": 32.0}, "vmmemorybucket": {">64": 128.0}}
#: The trace covers 30 days; machines with this time of deletion still existed at its end.
_END_S: Final = 30 * 86_400


def read_azure_2019(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace: a pod for each virtual machine, as large as its buckets.

    Raises  InputError
    """
    table = TaskTable()
    for row in table_rows(pods, _VMS, header=None):
        created, deleted = row.number("vmcreated"), row.number("vmdeleted")
        if deleted < created:
            raise row.fault("vmdeleted", "expected no less than vmcreated")
        labels = (("category", row.text("vmcategory")), ("subscription", row.text("subscriptionid")[:16]))
        table.add(
            f"vm-{row.text('vmid')[:16]}", created, None if deleted >= _END_S - 300 else deleted - created,
            round(1000 * _bucket(row, "vmcorecountbucket")), round(_bucket(row, "vmmemorybucket") * (1 << 30)), labels=labels,
        )  # fmt: skip
    return table.builder.finish(
        [],
        [
            "sizes are buckets: >24 cores is read as 32, >64 GB as 128",
            "virtual machines that are there at the start arrive at time 0",
            "nodes are not published",
        ],
    )


def _bucket(row: TraceRow, column: str) -> float:
    known = _OPEN[column].get(row.text(column))
    return row.number(column) if known is None else known


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
