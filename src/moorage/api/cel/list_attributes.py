"""Whether attributes of devices may be lists of values: what expressions say of them, and what a device with one means."""

from __future__ import annotations

from enum import IntEnum


class Lists(IntEnum):
    """What an expression makes of attributes that are lists.

    ``UNKNOWN``      expressions know no lists, and a device with one is an error: new expressions while the gate
                     ``DRAListTypeAttributes`` is closed, and all up to 1.35
    ``UNSUPPORTED``  the function ``includes`` is known, but a device with a list is an error: stored expressions of 1.36
                     while the gate is closed
    ``SUPPORTED``    the gate is open; or an expression is stored, from 1.37 on

    Source  dynamic-resource-allocation/cel/compile.go of 1.36 and 1.37: the environment of stored expressions has what any gate
            would add to it
    """

    UNKNOWN = 0
    UNSUPPORTED = 1
    SUPPORTED = 2
