"""YAML as it is written for people's eyes: letters of every script stand for themselves, and no text steers a terminal."""

from __future__ import annotations

from typing import Any

import yaml

from moorage.printable import is_printable

__all__ = ["PrintableDumper"]


class PrintableDumper(yaml.SafeDumper):
    """A dumper, for ``allow_unicode=True``, that puts a text with characters that mislead in double quotes, as escapes."""

    def analyze_scalar(self, scalar: str) -> Any:
        # The emitter analyzes a scalar right before it writes it, and looks at allow_unicode in both steps.
        self.allow_unicode = is_printable(scalar.replace("\n", "").replace("\t", ""))
        return super().analyze_scalar(scalar)
