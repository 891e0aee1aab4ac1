"""Karpenter: which nodes it adds for pending pods, and which it removes or replaces."""
