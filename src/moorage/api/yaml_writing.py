"""YAML output for people: characters of every script stay readable, and no text can control a terminal."""

from __future__ import annotations

from typing import Any

import yaml

from moorage.basis.printable import is_printable

__all__ = ["PrintableDumper"]


class PrintableDumper(yaml.SafeDumper):
    """A dumper, for ``allow_unicode=True``, that writes texts with misleading characters as escapes in double quotes."""

    def analyze_scalar(self, scalar: str) -> Any:
        # The emitter analyzes a scalar right before it writes it, and both steps read allow_unicode.
        self.allow_unicode = is_printable(scalar.replace("\n", "").replace("\t", ""))
        return super().analyze_scalar(scalar)
