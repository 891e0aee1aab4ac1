"""Let pods and jobs come and go in `moorage up` for hours of virtual time, and count what is alive after each.

    python -m tools.soak.virtual --hours 12

The API server's store, the controllers and what forgets old changes and events run as in `moorage up`, without HTTP; pods are
bound in turn. Events live for an hour, so the numbers are compared from the second hour on. The exit status is 1 if there are
more than ``--most`` percent more live blocks of memory in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
from collections.abc import Sequence
from itertools import count
from typing import Final

from moorage.api.documents.served_kinds import Document, served
from moorage.cluster.apiserver.forgetting import forget_old
from moorage.cluster.controllers.all_controllers import all_controllers
from moorage.cluster.controllers.manager import ControllerManager
from moorage.cluster.controllers.nodes.hollow_nodes import NodeShape, make_nodes
from moorage.rules.store.store import Store
from moorage.rules.store.subresources import bind
from moorage.testing.virtual_time import run_virtually

_PODS, _JOBS, _NODES = served("pods"), served("jobs", "batch"), served("nodes")
#: The time of day at which virtual time begins.
_BEGAN: Final = 1_800_000_000.0
_ALIVE: Final = 10
_CONTAINERS: Final = [{"name": "c", "image": "example.com/app", "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}]


class Churn:
    """A cluster of ``nodes``, in which ``pods`` a minute come and go, each tenth of them by a job."""

    def __init__(self, nodes: int, pods: int) -> None:
        self.pods = pods
        clock = asyncio.get_running_loop().time
        self.store = Store(lambda: _BEGAN + clock(), random.Random(0), b"key")  # noqa: S311
        self.manager = ControllerManager(self.store, all_controllers())
        self.store.empties_namespaces = False
        for node in make_nodes(nodes, NodeShape()):
            self.store.create(_NODES, "", node)
        self._names = [record.name for record in self.store.all(_NODES)]
        self._made = count()

    async def run(self) -> None:
        """Create, bind and delete pods until cancelled."""
        while True:
            await asyncio.sleep(60 / self.pods)
            number = next(self._made)
            kind, document = (_JOBS, _job(number)) if number % 10 == 0 else (_PODS, _pod(number))
            self.store.create(kind, "default", document)
            await asyncio.sleep(0.1)
            self._bind()
            if number >= _ALIVE:
                old = number - _ALIVE
                self.store.delete(_JOBS if old % 10 == 0 else _PODS, "default", _name(old))

    def _bind(self) -> None:
        for number, record in enumerate([*self.store.all(_PODS)]):
            if not record.fields["spec.nodeName"]:
                node = self._names[(record.version + number) % len(self._names)]
                body = {"metadata": {"name": record.name}, "target": {"kind": "Node", "name": node}}
                bind(self.store, record.namespace, record.name, body)


def _name(number: int) -> str:
    return f"soak-{number}"


def _pod(number: int) -> Document:
    metadata = {"name": _name(number), "labels": {"app": f"app-{number % 10}"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": _CONTAINERS}}


def _job(number: int) -> Document:
    template = {"spec": {"containers": _CONTAINERS, "restartPolicy": "Never"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": _name(number)}, "spec": {"template": template}}


async def blocks(hours: int, nodes: int, pods: int) -> list[int]:
    """Return how many blocks of memory are alive after each hour."""
    churn = Churn(nodes, pods)
    tasks = [asyncio.create_task(one) for one in (churn.manager.run(), forget_old(churn.store), churn.run())]
    alive = []
    for hour in range(1, hours + 1):
        await asyncio.wait(tasks, timeout=3600, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        gc.collect()
        alive.append(sys.getallocatedblocks())
        sys.stderr.write(f"{hour} h: {alive[-1]:,} blocks, version {churn.store.version:,}\n")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return alive


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak.virtual", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hours", type=int, default=12)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--pods-a-minute", type=int, default=20)
    parser.add_argument("--most", type=float, default=1.0, help="the highest growth after two hours, in percent (default: 1)")
    given = parser.parse_args(arguments)
    alive = run_virtually(blocks(given.hours, given.nodes, given.pods_a_minute))
    grown = 100 * (alive[-1] / alive[min(1, len(alive) - 1)] - 1)
    sys.stdout.write(f"{alive[-1]:,} blocks after {given.hours} h, {grown:+.2f} % since the second hour\n")
    return int(grown > given.most)


if __name__ == "__main__":
    sys.exit(main())
