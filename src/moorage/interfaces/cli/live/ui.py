"""``moorage ui``: print another link to the web interface of a running cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from moorage.basis.client.credentials import Endpoint
from moorage.basis.client.rest import Rest
from moorage.errors import ClusterError, InputError
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.terminal import say
from moorage.laboratory.dump.live_dump import endpoint_of


class _Link(msgspec.Struct):
    token: str


@described("ui")
def ui(**given: Any) -> None:
    """Run ``moorage ui``."""
    endpoint = endpoint_of(given["kubeconfig"], given["context"])
    say(f"{endpoint.server}/ui/#token={asyncio.run(_token(endpoint))}")


async def _token(endpoint: Endpoint) -> str:
    async with Rest(endpoint, agent="moorage-ui") as rest:
        try:
            return msgspec.json.decode(await rest.send("POST", "/lab/v1/links", b"{}"), type=_Link).token
        except ClusterError as error:
            if error.status != 404:
                raise
        except msgspec.DecodeError:
            pass
    raise InputError(f"{endpoint.server}: serves no web interface; it is part of moorage up")
