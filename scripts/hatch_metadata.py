"""Make the metadata that depends on where the project is: its addresses, and a README whose links work elsewhere."""

import re
import tomllib
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: A link or picture of Markdown whose target is a file of the repository.
_RELATIVE = re.compile(r"(!?\[[^\]]*\]\()(?!https?:|#|mailto:)([^)\s]+)(\))")
_PICTURES = (".png", ".svg", ".gif", ".jpg")


def with_addresses(text, repository, version):
    """Return Markdown in which links to files of the repository lead to this version of them."""

    def address(found):
        before, target, after = found.groups()
        kind = "raw" if target.endswith(_PICTURES) else "blob"
        return f"{before}{repository}/{kind}/v{version}/{target.removeprefix('./')}{after}"

    return _RELATIVE.sub(address, text)


def metadata(root):
    """Return the fields of the metadata, for the project in this folder."""
    repository = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["moorage"]["repository"]
    version = re.search(r'^__version__ = "(.+)"$', (root / "src/moorage/__init__.py").read_text("utf-8"), re.MULTILINE)[1]
    pages = f"{repository}/blob/v{version}"
    return {
        "readme": {
            "content-type": "text/markdown",
            "text": with_addresses((root / "README.md").read_text("utf-8"), repository, version),
        },
        "urls": {
            "Homepage": repository,
            "Documentation": f"{pages}/docs/index.md",
            "Changelog": f"{pages}/CHANGELOG.md",
            "Issues": f"{repository}/issues",
            "Security": f"{pages}/SECURITY.md",
        },
    }


class MoorageMetadata(MetadataHookInterface):
    """The hook that hatchling calls."""

    def update(self, fields):
        fields.update(metadata(Path(self.root)))
