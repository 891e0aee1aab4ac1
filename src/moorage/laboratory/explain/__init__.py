"""Why a pod is pending, or why it is on its node; for a simulation and for a live scheduler."""
