"""A plugin that keeps pods on their way to a node."""

import asyncio

from moorage.framework.effects import Call
from moorage.framework.verdicts import Wait


class Holds:
    """Permit holds pods that are called so, PreBind is slow with others."""

    name = "Holds"

    def permit(self, state, pod, node):
        return Wait(300.0) if pod.name.startswith("permit") else None

    def pre_bind(self, state, pod, node):
        return [Call(lambda: asyncio.sleep(40.0), lambda: None)] if pod.name.startswith("prebind") else []
