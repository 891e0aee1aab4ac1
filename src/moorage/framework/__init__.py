"""The scheduling framework: the plugin interface, and how a profile runs its plugins."""
