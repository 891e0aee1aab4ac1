"""VolumeBinding up to 1.32: the reason for a volume out of reach has another text.

Source    kube-scheduler 1.32.5, plugins/volumebinding
"""

from __future__ import annotations

from moorage.plugins.v1_21.volume_binding import UNREACHABLE
from moorage.plugins.volume_binding import VolumeBinding

__all__ = ["VolumeBindingV132"]


class VolumeBindingV132(VolumeBinding):
    """The plugin; see the module docstring."""

    reuse = VolumeBinding.reuse
    reasons = (UNREACHABLE, *VolumeBinding.reasons[1:])
