"""``moorage plugin new``: write a folder with a plugin, its test, package and configuration."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import Final

import click

from moorage.basis import folder_of
from moorage.errors import InputError
from moorage.interfaces.cli.main import OK, CommandGroup
from moorage.interfaces.cli.option_tables import described
from moorage.plugins import builtin_registry

#: What the folder holds → the template in ``new_plugin_files``.
_FILES: Final = {
    "$module.py": "$kind.py", "test_$module.py": "test_$kind.py", "pyproject.toml": "pyproject.toml",
    "scheduler.yaml": "scheduler.yaml", "cluster.yaml": "cluster.yaml", "README.md": "README.md",
}  # fmt: skip


def files_of(kind: str, module: str, cls: str) -> Mapping[str, str]:
    """Return the texts of the folder's files by name."""
    folder, words = folder_of("moorage.interfaces.cli") / "new_plugin_files", {"kind": kind, "module": module, "cls": cls}

    def filled(text: str) -> str:
        return Template(text).substitute(words)

    return {
        filled(name): filled((folder / f"{filled(template)}.txt").read_text(encoding="utf-8"))
        for name, template in _FILES.items()
    }


#: A module's name that is also valid as the name of a distribution.
_USABLE: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?")
#: Names that a plugin cannot have, because the written files use them for something else.
_OF_MOORAGE: Final = "Action Attempt Call ClusterEvent Handle Hold NodeInfo PodInfo PostFilterResult Resource Wait Wake"
_USED: Final = frozenset([*_OF_MOORAGE.split(), "TEAM", "moorage", "pytest", "setuptools"])


@described("plugin", CommandGroup)
def plugin() -> None:
    """Run ``moorage plugin``."""


@described("plugin-new", short_help="Write a folder with a new plugin.")
def new(name: str, kind: str) -> int:
    """Run ``moorage plugin new``."""
    cls = _class_name(name)
    folder = Path(name)
    try:
        folder.mkdir()
    except FileExistsError:
        raise InputError(f"{name}: exists already; choose another name") from None
    for file, text in files_of(kind, name, cls).items():
        (folder / file).write_text(text, encoding="utf-8")
    click.echo(f"The {kind} plugin {cls} is in {name}/. Next:\n")
    run_tests = "pytest" if find_spec("pytest") else "pip install pytest && pytest"
    click.echo(f"    cd {name}\n    {run_tests}")
    click.echo(f"    moorage simulate -f cluster.yaml --config scheduler.yaml --plugins ./{name}.py:{cls}")
    return OK


plugin.add_command(new)


def _class_name(name: str) -> str:
    """Return the name of the plugin's class: ``TeamNodes`` for ``team_nodes``.

    Raises  InputError if one of the two names cannot be used
    """
    if _USABLE.fullmatch(name) is None or iskeyword(name):
        near = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
        usable = _USABLE.fullmatch(near) is not None and not iskeyword(near)
        hint = f"; try {near}" if usable else ""
        raise InputError(f"{name}: is not a Python identifier that starts with a letter and ends with a letter or digit{hint}")
    cls = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    if name in sys.stdlib_module_names or {name, cls} & _USED or iskeyword(cls):
        raise InputError(f"{name}: the name is taken by Python or Moorage; choose another name")
    if cls in builtin_registry():
        raise InputError(f"{name}: {cls} is a built-in plugin; choose another name")
    return cls
