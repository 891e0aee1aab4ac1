"""DynamicResources of 1.37: the text about a selector that fails names the device, and gives a hint if a key is missing.

PostFilter gives no reason if it can free no claim. An allocation has each configuration once, and constraints for
distinct values compare each device with each. A pod of a group goes only where
the devices that another one reserved for a claim of both can be used. Devices that consume counters of the same set may have
compatibility groups: those in use together share one, or all have none. With the gate DRADeviceCompatibilityGroups closed,
slices with such devices are ignored, which leaves their pools incomplete. A slice with counters matters only to the nodes that
it selects, and counters are those of a driver's pool. A request for all devices fails if one that is large enough is in use. An
amount of capacity that cannot be right ends the attempt, and ranges of amounts may have thousandths.

Source    dynamic-resource-allocation 1.37, structured/internal/incubating/allocator_incubating.go; cel/errors.go;
          structured/internal/experimental/compatibility_groups.go
"""

from __future__ import annotations

from moorage.plugins.devices.pools import PoolRule
from moorage.plugins.dynamic_resources import DynamicResources


class DynamicResourcesV137(DynamicResources):
    rules = DynamicResources.rules._replace(
        names_devices=True, keeps_to_devices=True, overheads=True, pools=PoolRule(ungrouped=True), says_why_none_helps=False,
        configures_once=True, compares_devices=True, counts_by_driver=True, near_counters=True, all_by_size=True,
        checks_amounts=True, adds_up_requests=True, bare_shares=True,
    )  # fmt: skip
