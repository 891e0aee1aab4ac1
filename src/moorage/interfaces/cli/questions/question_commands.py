"""All commands that answer questions, imported before processes are forked for them."""

from __future__ import annotations

from moorage.interfaces.cli.questions import capacity, compare, drain, explain, plan, report
from moorage.interfaces.cli.questions import losses as cordon
from moorage.interfaces.cli.questions import losses as fail
from moorage.interfaces.cli.questions import losses as survive
from moorage.interfaces.cli.questions import moves as deschedule
from moorage.interfaces.cli.questions import moves as rightsize

__all__ = ["capacity", "compare", "cordon", "deschedule", "drain", "explain", "fail", "plan", "report", "rightsize", "survive"]
