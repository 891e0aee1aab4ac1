"""The differences between releases in how devices are chosen and refused, as one value."""

from __future__ import annotations

from typing import NamedTuple

from moorage.plugins.devices.claim_requests import NOT_OWNER
from moorage.plugins.devices.extended_resource_claims import ResourceBacking
from moorage.plugins.devices.pools import PoolRule


class DeviceRules(NamedTuple):
    """The rules of a release; the defaults are the rules of the newest release.

    ``pools``              which pools can be used
    ``not_owner``          the text about a claim that was made for another pod
    ``status_is_new``      the gate DRAResourceClaimDeviceStatus alone selects the newest of kube-scheduler's allocators
    ``names_subrequests``  the text about capacities names the alternative, rather than the request
    ``names_devices``      the text about a selector that fails names the device
    ``takes_shares_again``  a request may take several shares of one device
    ``undoes_refusals``    a device that is refused releases the counters that it needs
    ``shares_counters``    a device that is shared already needs no more counters
    ``charges_shares``     counters that the shares of earlier pods need are in use
    ``backing``            how devices back extended resources
    ``shares_in_group``    a pod of a group uses the devices that another one reserved for a claim of both
    ``keeps_to_devices``   and goes only where these devices can be used
    ``overheads``          devices may add overhead to what they take of the node, and claims that were allocated before count
    """

    pools: PoolRule = PoolRule.COMPLETE
    not_owner: str = NOT_OWNER
    status_is_new: bool = False
    names_subrequests: bool = True
    names_devices: bool = False
    takes_shares_again: bool = False
    undoes_refusals: bool = True
    shares_counters: bool = True
    charges_shares: bool = True
    backing: ResourceBacking = ResourceBacking()
    shares_in_group: bool = True
    keeps_to_devices: bool = False
    overheads: bool = False
