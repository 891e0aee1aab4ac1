"""What the layers of cloud providers change in the rules of autoscalers: ``providers.toml`` says it, with its sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from moorage.api.core import Node
from moorage.basis import text_of


class Provider(Struct, frozen=True, forbid_unknown_fields=True):
    """A cloud provider; ``providers.toml`` explains the fields."""

    prefix: str
    node_labels: tuple[str, ...]
    ignored_labels: tuple[str, ...]
    pools: tuple[str, ...] = ()


class _Data(Struct, frozen=True, forbid_unknown_fields=True):
    zone_keys: tuple[str, ...]
    providers: dict[str, Provider]


_DATA: Final = msgspec.toml.decode(text_of("moorage.simulator.autoscalers", "providers.toml"), type=_Data)
#: Keys that Karpenter reads as the zone.
ZONE_KEYS: Final = _DATA.zone_keys
PROVIDERS: Final[Mapping[str, Provider]] = _DATA.providers
#: What is ignored where no provider is known.
NO_PROVIDER: Final = Provider("", (), ())


def provider_of(nodes: Iterable[Node], named: str = "") -> Provider:
    """Return the provider of nodes, or the ``named`` one. A name that the table does not have has no layer here."""
    if named:
        return PROVIDERS.get(named, NO_PROVIDER)
    for node in nodes:
        for one in PROVIDERS.values():
            if node.spec.provider_id.startswith(one.prefix) or any(key in node.labels for key in one.node_labels):
                return one
    return NO_PROVIDER
