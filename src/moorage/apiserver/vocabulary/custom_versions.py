"""The properties that only versions of custom kinds have: a schema, printer columns, replica paths and names.

Source  apiextensions-apiserver, pkg/apis/apiextensions/v1/types.go
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["CustomVersion", "PrinterColumn", "ScalePaths", "Schema", "version_priority"]

#: A structural schema as a CustomResourceDefinition states it, whose fields have the types that the API demands.
Schema = Mapping[str, Any]


class PrinterColumn(NamedTuple):
    """A column of ``kubectl get``. ``path`` is a JSONPath without braces, such as ``.spec.size``."""

    name: str
    type: str
    path: str
    format: str = ""
    description: str = ""
    priority: int = 0


class ScalePaths(NamedTuple):
    """The paths of the replica counts and of the label selector, such as ``.spec.replicas``; ``selector`` may be empty."""

    wanted: str
    current: str
    selector: str = ""


@dataclass(frozen=True, eq=False)
class CustomVersion:
    """A version of a custom kind. ``warning`` is sent with each response of a deprecated version.

    ``is_terminating``: the definition is being deleted, so nothing can be created.
    """

    schema: Schema
    singular: str
    list_kind: str
    categories: tuple[str, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    scale: ScalePaths | None = None
    warning: str = ""
    is_served: bool = True
    is_terminating: bool = False


_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STAGES = {"": 2, "beta": 1, "alpha": 0}


def version_priority(version: str) -> tuple[bool, int, int, int, str]:
    """Return a sort key that puts preferred versions first: ``v2``, ``v1``, ``v1beta2``, ``v1alpha1``, then other names.

    Source  apimachinery, pkg/version/helpers.go, CompareKubeAwareVersionStrings
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        return True, 0, 0, 0, version
    return False, -_STAGES[found[2] or ""], -int(found[1]), -int(found[3] or 0), ""
