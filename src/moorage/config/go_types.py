"""The Go names of the configuration types, which kube-scheduler's messages contain."""

from __future__ import annotations

from typing import Final

from msgspec import inspect

from moorage.config import configuration
from moorage.framework.args import PluginArgs

__all__ = ["go_type", "short_name"]

_NAMES: Final[dict[type, str]] = {
    configuration.ClientConnection: "v1alpha1.ClientConnectionConfiguration",
    configuration.Configuration: "v1.KubeSchedulerConfiguration",
    configuration.LeaderElection: "v1alpha1.LeaderElectionConfiguration",
    configuration.ManagedResource: "v1.ExtenderManagedResource",
    configuration.PluginRef: "v1.Plugin",
    configuration.KubeSchedulerProfile: "v1.KubeSchedulerProfile",
}


_PLAIN: Final[dict[type, str]] = {inspect.BoolType: "bool", inspect.BytesType: "[]uint8"}


def short_name(cls: type) -> str:
    """Return a struct's name in Go, without its package."""
    return _name(cls).rpartition(".")[2]


def _name(cls: type) -> str:
    if issubclass(cls, PluginArgs):
        return f"v1.{cls.__qualname__.split('.')[0].removesuffix('Args')}Args"
    return _NAMES.get(cls, f"v1.{cls.__name__}")


def go_type(kind: inspect.Type) -> str:
    """Return a type as Go writes it: ``int32``, ``[]v1.Plugin``, ``map[string]string``."""
    match kind:
        case inspect.Metadata(type=inner):
            return go_type(inner)
        case inspect.StructType(cls=cls):
            return _name(cls)
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner):
            return f"[]{go_type(inner)}"
        case inspect.DictType(value_type=inner):
            return f"map[string]{go_type(inner)}"
        case inspect.IntType(le=most):
            return "int64" if most is None or most > 2**31 - 1 else "int32"
        case inspect.FloatType(le=most):
            return "float64" if most is None else "float32"
        case _:
            return _PLAIN.get(type(kind), "string")
