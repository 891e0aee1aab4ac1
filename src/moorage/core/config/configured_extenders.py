"""The extenders of a configuration, as the cycle asks them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moorage.api.releases import RELEASES, TODAY
from moorage.core.config.configuration import Extender
from moorage.core.extenders.consultation import HTTPExtender, in_order

DEFAULT_TIMEOUT_S: Final = 5.0


def extenders_of(configured: Iterable[Extender], release: str = TODAY) -> tuple[HTTPExtender, ...]:
    """Return the extenders in the order they are asked; each keeps its place in the configuration as its number."""
    return in_order(
        HTTPExtender(
            number,
            one.url_prefix,
            one.filter_verb,
            one.prioritize_verb,
            one.preempt_verb,
            one.bind_verb,
            one.weight,
            one.http_timeout or DEFAULT_TIMEOUT_S,
            one.node_cache_capable,
            one.ignorable,
            frozenset(resource.name for resource in one.managed_resources),
            RELEASES[release].extender_nodes_replace,
            RELEASES[release].binds_without_ignorable_extender,
        )
        for number, one in enumerate(configured)
    )
