"""The Common Expression Language, as far as selectors of devices may use it: read, checked, run within limits.

``compile_expression`` gives a ``Program`` for any variables; ``compile_selector`` one that is asked about devices.
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
