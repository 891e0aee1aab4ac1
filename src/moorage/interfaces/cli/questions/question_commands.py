"""All commands that answer questions, imported before processes are forked for them."""

from __future__ import annotations

from moorage.interfaces.cli.questions import (
    capacity,
    compare,
    cordon,
    deschedule,
    drain,
    explain,
    fail,
    plan,
    report,
    rightsize,
    survive,
)

__all__ = ["capacity", "compare", "cordon", "deschedule", "drain", "explain", "fail", "plan", "report", "rightsize", "survive"]
