"""The release 1.29: what sets it apart from the one after it.

Source  kubernetes, the scheduler of each release; docs/reference/releases.md names the pull requests
"""

from __future__ import annotations

from typing import Final

from moorage.releases.earlier_releases import EARLIER, before_release, of_minor
from moorage.releases.older_gates import GATES_1_29

__all__ = ["OLDER"]

_DISK_LIMITS: Final = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")

_1_30_10: Final = EARLIER[-1]

_1_29_14: Final = before_release(
    _1_30_10,
    "1.29.14",
    {
        **dict.fromkeys(_DISK_LIMITS, "1.29"),
        "ImageLocality": "1.29",
        "NodeAffinity": "1.29",
        "NodeResourcesFit": "1.29",
        "NodeVolumeLimits": "1.29",
        "VolumeBinding": "1.29",
    },
    lacks_points={**_1_30_10.lacks_points, "VolumeBinding": "preScore"},
    rejection_ends_pre_filter=True,
    binds_without_ignorable_extender=False,
    queue_sort_differs="has to match for all profiles",
    **of_minor("1.29", GATES_1_29),
)

#: Newest first, as each builds on the one after it.
OLDER: Final = (_1_29_14,)
