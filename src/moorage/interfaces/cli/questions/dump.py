"""``moorage dump``: write the objects of a live cluster, with the fields that scheduling reads, into one file."""

from __future__ import annotations

import asyncio
import gzip
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moorage.basis.client.credentials import Endpoint
from moorage.basis.client.rest import Rest
from moorage.basis.files import replacing
from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.served_companions import served_companions
from moorage.basis.printable import counted
from moorage.interfaces.cli.given_back_memory import collect_seldom
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.terminal import Progress, bare, say
from moorage.laboratory.dump.dump_file import DumpWriter
from moorage.laboratory.dump.live_dump import endpoint_of, fetch, naming_the_server, version_of
from moorage.simulator.cluster_input import UnreadKind


@described("dump")
def dump(**given: Any) -> None:
    """Run ``moorage dump``."""
    collect_seldom()
    endpoint = endpoint_of(given["kubeconfig"], given["context"])
    began = datetime.now(UTC).isoformat(timespec="seconds")
    writer = DumpWriter(given["kept"])
    with Progress(quiet=given["quiet"]) as progress:
        progress.say(f"reading {endpoint.server} …")
        with naming_the_server(endpoint.server):
            version, missing = asyncio.run(_fetch(endpoint, writer, given["kinds"], progress))
    write_parts(given["path"], writer.parts(endpoint.server, began, missing, version))
    if not given["quiet"]:
        _report(given["path"], writer, missing)


async def _fetch(
    endpoint: Endpoint, writer: DumpWriter, kinds: Iterable[str], progress: Progress
) -> tuple[str, list[UnreadKind]]:  # fmt: skip
    """Read the cluster into ``writer``; return the version of its API server, and the kinds that are missing."""

    def take(page: InputFile) -> None:
        writer.take(page)
        progress.say(f"reading {endpoint.server}: {sum(writer.counts.values()):,} objects …")

    async with Rest(endpoint, agent="moorage-dump") as rest:
        version, named = await version_of(rest.get), tuple(kinds)
        return version, await fetch(rest.get, take, (*named, *await served_companions(rest.get, named)))


def _report(path: str | None, writer: DumpWriter, missing: Iterable[UnreadKind]) -> None:
    counts = writer.counts
    total = sum(counts.values())
    nodes, pods = counts.get("Node", 0), counts.get("Pod", 0)
    say(
        f"{path or 'standard output'}: {counted(total, 'object')}, {counted(nodes, 'node')} and {counted(pods, 'pod')}",
        err=True,
    )
    for one in missing:
        say(f"  {one}", err=True)
    for _, fault in writer.unread:
        say(f"  left out, as it cannot be read: {fault}", err=True)


def write_parts(path: str | None, parts: Iterable[bytes]) -> None:
    """Write a file as a whole or not at all, readable by its owner only; standard output without a path.

    Raises  OSError
    """
    if path is None:
        out = bare(sys.stdout).buffer
        for part in parts:
            out.write(part)
        out.flush()
        return
    with replacing(Path(path), lasting=False) as plain:
        if path.endswith(".gz"):
            with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=plain, mtime=0) as packed:
                packed.writelines(parts)
        else:
            plain.writelines(parts)
