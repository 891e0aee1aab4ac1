"""The command line: parse what the user types and wire the other packages together.

``BEGAN_S`` is the monotonic time at which the command begins to load.
"""

import time
from typing import Final

BEGAN_S: Final = time.monotonic()
