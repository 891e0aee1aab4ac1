"""What a release contains of others: an inventory (SBOM) in the form of CycloneDX 1.6, from the lock files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

__all__ = ["inventory"]

_LOCKED = re.compile(r"^([A-Za-z0-9][\w.-]*)==(\S+?)(?: ; .*?)?\s*\\?$", re.MULTILINE)


def inventory(root: Path, version: str, timestamp: str) -> Mapping[str, Any]:
    """Return the inventory of a version.

    ``timestamp`` is ISO 8601, that of the commit: the same source gives the same inventory.
    """
    components = [*_python(root), *_page(root)]
    digest = hashlib.sha256(json.dumps(components, sort_keys=True).encode()).hexdigest()
    serial = f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": timestamp,
            "component": {
                "type": "application",
                "bom-ref": f"pkg:pypi/moorage@{version}",
                "name": "moorage",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": components,
    }


def _python(root: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the packages that ``requirements/run.txt`` locks."""
    for name, version in _LOCKED.findall((root / "requirements/run.txt").read_text("utf-8")):
        yield _component("pypi", name, version, _licence(name))


def _page(root: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the packages in the bundle of the web page."""
    for name, one in sorted(json.loads((root / "ui/package-lock.json").read_text("utf-8"))["packages"].items()):
        if name and not one.get("dev"):
            yield _component("npm", name.removeprefix("node_modules/"), one["version"], one["license"])


def _component(registry: str, name: str, version: str, licence: str) -> Mapping[str, Any]:
    place = f"pkg:{registry}/{name.replace('@', '%40')}@{version}"
    component = {"type": "library", "bom-ref": place, "name": name, "version": version, "purl": place}
    return {**component, "licenses": [{"expression": licence}]} if licence else component


def _licence(name: str) -> str:
    """Return the licence that an installed package names as an SPDX expression; "" if it does not, or is not installed."""
    try:
        return str(metadata(name).json.get("license_expression") or "")
    except PackageNotFoundError:
        return ""
