"""VolumeRestrictions up to 1.33: the reason for a ReadWriteOncePod claim in use has another text.

Source    kube-scheduler 1.33.3, plugins/volumerestrictions/volume_restrictions.go
"""

from __future__ import annotations

from moorage.plugins.volume_restrictions import VolumeRestrictions

__all__ = ["VolumeRestrictionsV133"]


class VolumeRestrictionsV133(VolumeRestrictions):
    """The plugin; see the module docstring."""

    reuse = VolumeRestrictions.reuse
    # kube-scheduler's own text, kept word for word: people search their events for it.
    claim_taken = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
