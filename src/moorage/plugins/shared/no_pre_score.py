"""The error of plugins that cannot score if a profile disables their PreScore.

Source  kube-scheduler, getPreScoreState of the plugins
"""

from __future__ import annotations

from moorage.errors import AttemptError


class NoPreScoreError(AttemptError):
    """Score needs the state of PreScore, and PreScore is disabled. ``failed``: the plugin's words for it."""

    def __init__(self, plugin: str, failed: str = "failed to read") -> None:
        cause = f'{failed} "PreScore{plugin}" from cycleState: not found'
        super().__init__(plugin, f'running Score plugins: plugin "{plugin}" failed with: {cause}')
