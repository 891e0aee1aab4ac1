"""The Common Expression Language (CEL), as far as device selectors use it: parse, check, and run within limits.

``compile_expression`` returns a ``Program`` for any variables; ``compile_selector`` returns a selector for devices.
"""

from moorage.api.cel.bounds import CelError, CompileError, CostLimitError, EvalError
from moorage.api.cel.devices import (
    CompiledSelector,
    DeviceFacts,
    Version,
    compile_selector,
    device_variables,
    estimated_selector_cost,
)
from moorage.api.cel.program import COST_LIMIT, Program, compile_expression, compile_with_estimate

__all__ = [
    "COST_LIMIT",
    "CelError",
    "CompileError",
    "CompiledSelector",
    "CostLimitError",
    "DeviceFacts",
    "EvalError",
    "Program",
    "Version",
    "compile_expression",
    "compile_selector",
    "compile_with_estimate",
    "device_variables",
    "estimated_selector_cost",
]  # fmt: skip
