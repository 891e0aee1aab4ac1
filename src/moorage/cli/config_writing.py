"""Write a configuration as YAML in kube-scheduler's format, replacing an existing file atomically."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from moorage.api.yaml_writing import PrintableDumper
from moorage.errors import InputError

__all__ = ["as_yaml", "write_config"]

_TEXT: Final = "tag:yaml.org,2002:str"


class _GoYaml(PrintableDumper):
    """Format as kube-scheduler does, so that both files can be compared: a string that looks like a number is ``"123"``."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain_tag = dumper.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return dumper.represent_scalar(_TEXT, text, style=None if plain_tag == _TEXT or text == "*" else '"')


_GoYaml.add_representer(str, _text)


def as_yaml(document: Mapping[str, Any]) -> str:
    """Return a document as YAML in the format that kube-scheduler writes."""
    return yaml.dump(dict(document), Dumper=_GoYaml, allow_unicode=True, width=float("inf"))


def write_config(path: Path, document: Mapping[str, Any]) -> None:
    """Write a configuration to the file that ``--write-config-to`` names.

    Raises  InputError
    """
    text = as_yaml(document)
    try:
        path = path.resolve()  # write the target of a symbolic link and keep the link
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path, text)
    except OSError as error:
        raise InputError(f"--write-config-to {path}: {error.strerror}") from None


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically: a concurrent reader sees either the old content or the new one."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "w", encoding="utf-8") as file:
        try:
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            fresh.replace(path)
        except OSError:
            fresh.unlink()
            raise
