"""What a run did for claims and pod groups: as values, as tables, and as parts of the report document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from moorage.report.style import PLAIN, Style, columns

#: Plain tables list up to this many rows.
_EVERY_ROW = 100


class VolumeOutcome(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A PersistentVolumeClaim that was bound. ``made``: its volume was provisioned in this run.

    ``pods`` are the pods that use it and that this run placed, as namespace/name in order of arrival; ``node`` is the node of
    the first.
    """

    namespace: str
    claim: str
    volume: str
    storage_class: str = ""
    made: bool = msgspec.field(name="new")
    node: str = ""
    pods: tuple[str, ...]


class DeviceOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device that was allocated to a ResourceClaim, for one of its requests. ``node`` and ``pods`` as for volumes."""

    namespace: str
    claim: str
    request: str
    driver: str
    pool: str
    device: str
    node: str = ""
    pods: tuple[str, ...]


def claim_tables(
    volumes: Sequence[VolumeOutcome], devices: Sequence[DeviceOutcome], *, wide: bool, style: Style = PLAIN
) -> Iterator[str]:
    """Yield a table of volumes and one of devices; each only if it has rows."""
    if volumes:
        header = ["NAMESPACE", "CLAIM", "VOLUME", "CLASS", "NODE", "PODS"]
        rows = [
            [one.namespace, one.claim, one.volume + (" (new)" if one.made else ""), one.storage_class or "-", *_users(one)]
            for one in volumes
        ]
        yield _table("Volumes bound:", header, rows, style, wide=wide)
    if devices:
        header = ["NAMESPACE", "CLAIM", "REQUEST", "DRIVER", "POOL", "DEVICE", "NODE", "PODS"]
        rows = [[one.namespace, one.claim, one.request, one.driver, one.pool, one.device, *_users(one)] for one in devices]
        yield _table("Devices allocated:", header, rows, style, wide=wide)


def _users(one: VolumeOutcome | DeviceOutcome) -> tuple[str, str]:
    names = [pod.partition("/")[2] for pod in one.pods]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return one.node or "-", f"{names[0]}{more}" if names else "-"


def _table(title: str, header: list[str], rows: list[list[str]], style: Style, *, wide: bool) -> str:
    shown = rows if wide else rows[:_EVERY_ROW]
    left = len(rows) - len(shown)
    return "\n".join(
        [style.bold(title), columns(header, shown, style=style), *([f"and {left} more (use -o wide for all)"] if left else [])]
    )


def claim_data(volumes: Sequence[VolumeOutcome], devices: Sequence[DeviceOutcome]) -> dict[str, Any]:
    """Return ``volumes`` and ``devices`` as plain data; an empty one is left out."""
    data = {"volumes": volumes, "devices": devices}
    return {name: msgspec.to_builtins(rows) for name, rows in data.items() if rows}


# -- group report ------------------------------------------------------------------------------------------------------

#: The plain table lists up to this many groups; with more, only those that are not scheduled.
_EVERY_GROUP = 100


class PodGroupOutcome(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pod group at the end of a run.

    ``state``      Scheduled, Unschedulable, Error, Waiting (not tried; ``message`` says why) or Missing (it does not exist)
    ``min_count``  how many of its pods must be scheduled together; None for a basic group
    ``pods``       how many pods name the group; ``placed``: how many of these are on a node
    """

    namespace: str
    name: str
    state: str
    min_count: int | None = None
    pods: int
    placed: int
    message: str = ""


def group_table(groups: Sequence[PodGroupOutcome], *, wide: bool, style: Style = PLAIN) -> str:
    """Return the table of the groups; needs at least one."""
    shown = groups if wide or len(groups) <= _EVERY_GROUP else [group for group in groups if group.state != "Scheduled"]
    rows = [
        [
            group.namespace, group.name, group.state, str(group.placed), str(group.pods),
            "-" if group.min_count is None else str(group.min_count), group.message or "-",
        ]
        for group in shown
    ]  # fmt: skip
    table = columns(["NAMESPACE", "GROUP", "STATE", "PLACED", "PODS", "MIN", "WHY"], rows, right=(3, 4, 5), style=style)
    left = len(groups) - len(shown)
    return "\n".join(
        [style.bold("Pod groups:"), table, *([f"and {left} more, all scheduled (use -o wide for all)"] if left else [])]
    )


def group_data(groups: Sequence[PodGroupOutcome]) -> dict[str, Any]:
    """Return ``podGroups`` as plain data; an empty dict if there are none."""
    return {"podGroups": msgspec.to_builtins(groups)} if groups else {}
