"""The plugins of each Kubernetes release, and the class that implements each in that release, from ``variants.toml``.

``PLUGINS_1_21`` lists the plugins of 1.21, which stands for 1.19 to 1.21. A module is imported when one of its classes is asked
for, so that the current release does not load the rules of all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, Generic, TypeVar

from moorage.basis import table_of

_K = TypeVar("_K")


class _Classes(Mapping[_K, Any], Generic[_K]):
    """Classes by key; ``where``: key → the module and the name of the class."""

    def __init__(self, where: Mapping[_K, tuple[str, str]]) -> None:
        self._where = where

    def __getitem__(self, key: _K) -> Any:
        module, name = self._where[key]
        return getattr(import_module(module), name)

    def __iter__(self) -> Iterator[_K]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)


_TABLE: Final = table_of("moorage.plugins.shared", "variants.toml")
_IN_TREE: Final = "moorage.plugins.v1_21.in_tree_limits"


def _by_name(table: Mapping[str, str], ending: str = "") -> dict[str, tuple[str, str]]:
    """Return plugin → the module and the name of its class, which may have an ending."""
    return dict(
        sorted((name.removesuffix(ending), (module, name)) for module, names in table.items() for name in names.split())
    )


#: Plugin → its class in the newest release.
PLUGINS_TODAY: Final = _Classes(_by_name(_TABLE["classes_today"]))

#: Plugin → its class in 1.21.
PLUGINS_1_21: Final = _Classes(_by_name(_TABLE["classes_1_21"], "V121"))

#: Plugin, and the release in which its rule ended → the class with that rule. ``Release.variants`` names them.
VARIANTS: Final = _Classes(
    {(name, "1.22"): (_IN_TREE, name) for name in _TABLE["classes_1_21"][_IN_TREE].split()}
    | {
        (plugin, release): (module, f"{plugin}V{release.replace('.', '')}")
        for module, plugins in _TABLE["classes"].items()
        for plugin, releases in plugins.items()
        for release in releases.split()
    }
)
