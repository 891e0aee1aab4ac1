"""Create pods in a cluster, and delete each a minute later."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from moorage.basis.client.rest import Rest
from moorage.errors import ClusterError
from moorage.interfaces.cli.live.run_serving import endpoint_of_file

_PODS = "/api/v1/namespaces/default/pods"
_ALIVE_S = 60.0


def a_pod(number: int) -> bytes:
    """Return a pod of one of four sizes."""
    requests = {"cpu": f"{50 * (1 + number % 4)}m", "memory": "64Mi"}
    containers = [{"name": "c", "image": "example.com/app", "resources": {"requests": requests}}]
    labels = {"app": f"app-{number % 10}"}
    metadata = {"name": f"soak-{number}", "labels": labels}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}).encode()


async def churn(rest: Rest, pods_a_minute: int, minutes: float) -> None:
    """Create and delete pods at a steady rate."""
    alive: deque[tuple[float, int]] = deque()
    began, number = time.monotonic(), 0
    while (now := time.monotonic()) < began + minutes * 60:
        await rest.send("POST", _PODS, a_pod(number))
        alive.append((now, number))
        number += 1
        while alive and alive[0][0] < now - _ALIVE_S:
            try:
                await rest.send("DELETE", f"{_PODS}/soak-{alive.popleft()[1]}", b"{}")
            except ClusterError as error:
                if error.status != 404:
                    raise
        await asyncio.sleep(max(0.0, began + number * 60 / pods_a_minute - time.monotonic()))


async def main(arguments: Sequence[str]) -> None:
    """Churn by the arguments: a kubeconfig, pods a minute, minutes."""
    kubeconfig, pods_a_minute, minutes = arguments
    async with Rest(endpoint_of_file(str(Path(kubeconfig)), print), qps=0) as rest:
        await churn(rest, int(pods_a_minute), float(minutes))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
