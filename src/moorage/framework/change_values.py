"""The texts that name terms, expressions, taints and host ports in a ``Change``, because these have no names of their own."""

from __future__ import annotations

import msgspec

from moorage.api.core import Taint
from moorage.api.meta import Value

__all__ = ["port_text", "taint_text", "term_text"]


def term_text(term: Value) -> str:
    """Return a term or an expression as compact JSON."""
    return msgspec.json.encode(term, order="deterministic").decode()


def taint_text(taint: Taint) -> str:
    """Return a taint as kubectl writes it: ``key=value:Effect``, ``key:Effect``."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def port_text(protocol: str, address: str, port: int) -> str:
    """Return a host port: ``8080/TCP``, ``10.0.0.1:8080/TCP``."""
    at = "" if address in {"", "0.0.0.0"} else f"{address}:"  # noqa: S104 (an address to compare, not to bind)
    return f"{at}{port}/{protocol or 'TCP'}"
