"""Changes that would place a pod, as values."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["AtomReport", "ChangeReport"]


class AtomReport(Struct, frozen=True, rename="camel"):
    """One change of one object: ``path`` is the field, ``old`` and ``new`` its values, ``text`` the change in words."""

    owner: str
    verb: str
    target: str
    text: str
    cost: float
    path: str
    old: str | int | bool | None
    new: str | int | bool | None


class ChangeReport(Struct, frozen=True, rename="camel"):
    """Changes that together place the pod on one of ``nodes``. ``displaced`` pods give way, ``stranded`` ones find no place.

    ``minimal``: no subset of the changes is enough. ``alike``: the same change of other objects, at the same cost.
    """

    owner: str
    cost: float
    atoms: tuple[AtomReport, ...]
    commands: tuple[str, ...]
    nodes: tuple[int, ...]
    displaced: tuple[str, ...] = ()
    stranded: tuple[str, ...] = ()
    minimal: bool = True
    alike: tuple[str, ...] = ()
