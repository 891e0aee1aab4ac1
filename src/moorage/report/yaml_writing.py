"""YAML output for people: characters of every script stay readable, and no text can control a terminal."""

from __future__ import annotations

from typing import Any, Final

from moorage.basis.printable import is_printable

_TEXT: Final = "tag:yaml.org,2002:str"


def yaml_text(document: Any, *, sort_keys: bool = True, width: float = 100, quoted: str = "") -> str:
    """Return a document as YAML; texts with misleading characters are written as escapes in double quotes.

    ``quoted``: which other strings are: ``all``, so that no YAML reader parses one as a number, or ``go``, those that
    kube-scheduler quotes.
    """
    import yaml  # takes a seventh of the time to start, and most commands write none

    class Dumper(yaml.SafeDumper):
        def analyze_scalar(self, scalar: str) -> Any:
            # The emitter analyzes a scalar right before it writes it, and both steps read allow_unicode.
            self.allow_unicode = is_printable(scalar.replace("\n", "").replace("\t", ""))
            return super().analyze_scalar(scalar)

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        plain = dumper.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        is_plain = quoted == "go" and (plain == _TEXT or text == "*")
        return dumper.represent_scalar(_TEXT, text, style=None if is_plain else '"')

    if quoted:
        Dumper.add_representer(str, represent)
    written: str = yaml.dump(document, Dumper=Dumper, sort_keys=sort_keys, allow_unicode=True, width=width)
    return written
