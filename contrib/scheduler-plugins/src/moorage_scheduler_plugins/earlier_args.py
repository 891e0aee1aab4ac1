"""Arguments of earlier releases, which configurations still have: accepted, and without effect."""

from __future__ import annotations

import msgspec

from moorage.framework.args import PluginArgs


class EarlierArgs(PluginArgs, frozen=True):
    """Where the plugin found its kubeconfig, and in which namespaces it looked, up to v1beta1."""

    kube_config_path: str = msgspec.field(default="", name="kubeConfigPath")
    kubeconfigpath: str = msgspec.field(default="", name="kubeconfigpath")
    kube_master: str = ""
