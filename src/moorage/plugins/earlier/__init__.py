"""Plugins of 1.23 to 1.35 where they differ from 1.36: ``PluginV133`` follows the rule that ended with 1.33."""
