"""DynamicResources of 1.37: the text about a selector that fails names the device, and gives a hint if a key is missing.

A pod of a group goes only where the devices that another one reserved for a claim of both can be used.

Source    dynamic-resource-allocation 1.37, structured/internal/incubating/allocator_incubating.go; cel/errors.go
"""

from __future__ import annotations

from moorage.plugins.dynamic_resources import DynamicResources


class DynamicResourcesV137(DynamicResources):
    rules = DynamicResources.rules._replace(names_devices=True, keeps_to_devices=True)
    reuse = DynamicResources.reuse
