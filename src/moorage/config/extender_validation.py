"""Validation of scheduler extenders.

Source  kube-scheduler 1.36.2, apis/config/validation/validation.go, validateExtenders
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.names import check_qualified_name, is_extended_resource_name
from moorage.config.configuration import Extender
from moorage.errors import Fault

__all__ = ["extender_faults"]


def extender_faults(extenders: tuple[Extender, ...]) -> Iterator[Fault]:
    """Yield the faults of the extenders, each alone and all together."""
    managed: set[str] = set()
    for i, extender in enumerate(extenders):
        path = f"extenders[{i}]"
        if extender.prioritize_verb and extender.weight <= 0:
            yield Fault("Invalid value", f"{path}.weight", "must have a positive weight applied to it", extender.weight)
        for j, resource in enumerate(extender.managed_resources):
            at = f"{path}.managedResources[{j}].name"
            yield from _resource_name_faults(resource.name, at)
            if resource.name in managed:
                yield Fault("Invalid value", at, "duplicate extender managed resource name", resource.name)
            managed.add(resource.name)
    binders = sum(1 for extender in extenders if extender.bind_verb)
    if binders > 1:
        found = f"found {binders} extenders implementing bind"
        yield Fault("Invalid value", "extenders", "only one extender can implement bind", found)


def _resource_name_faults(name: str, path: str) -> Iterator[Fault]:
    wrong = check_qualified_name(name)
    yield from (Fault("Invalid value", path, text, name) for text in wrong)
    if not wrong and not is_extended_resource_name(name):
        yield Fault("Invalid value", path, "is an invalid extended resource name", name)
