"""The Common Expression Language (CEL), as far as device selectors use it: parse, check, and run within limits.

``compile_expression`` returns a ``Program`` for any variables; ``compile_selector`` returns a selector for devices.
"""

from moorage.cel.cel_errors import CelError, CompileError, CostLimitError, EvalError
from moorage.cel.devices import CompiledSelector, DeviceFacts, Version, compile_selector, device_variables
from moorage.cel.program import Program, compile_expression

__all__ = [
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
    "device_variables",
]  # fmt: skip
