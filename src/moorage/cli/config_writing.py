"""A configuration as YAML, as kube-scheduler writes it, and as a file that takes the place of another at once."""

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
    """Writes as kube-scheduler does, so that both files can be compared: a text that looks like a number is ``"123"``."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    as_it_stands = dumper.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return dumper.represent_scalar(_TEXT, text, style=None if as_it_stands == _TEXT or text == "*" else '"')


_GoYaml.add_representer(str, _text)


def as_yaml(document: Mapping[str, Any]) -> str:
    """Return a document as kube-scheduler prints it."""
    return yaml.dump(dict(document), Dumper=_GoYaml, allow_unicode=True, width=float("inf"))


def write_config(path: Path, document: Mapping[str, Any]) -> None:
    """Write what ``--write-config-to`` asks for.

    Raises  InputError
    """
    text = as_yaml(document)
    try:
        path = path.resolve()  # a link goes on leading where it led
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path, text)
    except OSError as error:
        raise InputError(f"--write-config-to {path}: {error.strerror}") from None


def _replace(path: Path, text: str) -> None:
    """Put a file in the place of what is there, at once and as a whole: who reads it meanwhile sees the one or the other."""
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
