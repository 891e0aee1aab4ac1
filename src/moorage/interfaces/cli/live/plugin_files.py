"""Follow the files of custom plugins: when one changes, import them again and build a scheduler with the new code.

A change that cannot be imported is reported, and the old code stays loaded.
"""

from __future__ import annotations

import asyncio
import importlib
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

from moorage.core.engine.scheduler import Scheduler
from moorage.errors import MoorageError
from moorage.framework.plugin_runner import failure_text
from moorage.live.server.embedded import BuiltScheduler

#: Seconds between two checks of the files, and seconds to wait after a change before they are read.
_LOOK_S: Final = 0.5
_REST_S: Final = 0.1

Stamps = dict[str, tuple[int, int]]
Report = Callable[[str], None]


class PluginFiles:
    """The modules of a scheduler's custom plugins, and the modules that these import from the same folders."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._folders = frozenset(_folders(scheduler))
        self._stamps = self._look()

    @property
    def names(self) -> list[str]:
        """The names of the files to watch."""
        return sorted(Path(path).name for path in self._stamps)

    def _modules(self) -> Iterator[tuple[str, ModuleType, str]]:
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if path and any(Path(path).is_relative_to(folder) for folder in self._folders) and _is_own(path):
                yield name, module, path

    def _look(self) -> Stamps:
        return {path: stamp for _, _, path in self._modules() if (stamp := _stamp(path)) is not None}

    def have_changed(self) -> bool:
        """Return True if a file changed since the last reload; False while one is missing, as an editor is replacing it."""
        now = {path: _stamp(path) for path in self._stamps}
        return None not in now.values() and now != self._stamps

    def reload(self, build: Callable[[], BuiltScheduler]) -> BuiltScheduler:
        """Import the modules again and build a scheduler. If that fails, restore the old modules and raise the error."""
        old = {name: module for name, module, _ in self._modules()}
        self._stamps = {path: _stamp(path) or (0, 0) for path in self._stamps}
        for name in old:
            del sys.modules[name]
        importlib.invalidate_caches()
        linecache.checkcache()
        try:
            built = build()
        except BaseException:
            for name in [name for name, _, _ in self._modules()]:
                del sys.modules[name]
            sys.modules.update(old)
            raise
        self._stamps |= self._look()
        return built


def _folders(scheduler: Scheduler) -> Iterator[Path]:
    """Yield the folders of custom plugins: for a plugin in a package, that of the top-level package."""
    modules = {type(plugin).__module__ for profile in scheduler.profiles.values() for plugin in profile.plugins.values()}
    for name in modules:
        if name.partition(".")[0] != "moorage":
            path = getattr(sys.modules.get(name.partition(".")[0]), "__file__", None)
            if path:
                yield Path(path).resolve().parent


def _is_own(path: str) -> bool:
    """Return True for files that a user may edit, which excludes installed packages, extension modules and Moorage itself."""
    parts = Path(path).parts
    own_code = Path(__file__).resolve().parents[3]
    return "site-packages" not in parts and not Path(path).is_relative_to(own_code) and "lib-dynload" not in parts


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


async def follow(
    files: PluginFiles, build: Callable[[], BuiltScheduler], restart: Callable[[BuiltScheduler], None], report: Report
) -> None:
    """Build a scheduler whenever the files change, and pass it to ``restart``, until cancelled."""
    while True:
        await asyncio.sleep(_LOOK_S)
        if not files.have_changed():
            continue
        await asyncio.sleep(_REST_S)
        try:
            built = files.reload(build)
        except MoorageError as error:
            report(f"{error}; the old plugins stay in use")
        except Exception as error:
            report(f"the changed plugins cannot be used: {failure_text(error)}; the old ones stay in use")
        else:
            restart(built)
