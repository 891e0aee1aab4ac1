"""Azure 2019 (AzurePublicDatasetV2): 2.7 million virtual machines of one region over 30 days.

Pods   ``vmtable.csv``, no header: vm id, subscription id, deployment id, created (s), deleted (s), max cpu, avg cpu, p95 max
       cpu, category, core count bucket, memory bucket (GB)
Nodes  not published: give nodes of your own
"""

from __future__ import annotations

from typing import Final

from moorage.simulator.trace import Trace
from moorage.traces.streams import TraceRow, table_rows
from moorage.traces.tasks import TaskTable

__all__ = ["read_azure_2019"]

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
    del nodes
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
