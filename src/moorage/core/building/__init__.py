"""From a configuration to a scheduler: the one place where configurations, plugins and the engine meet."""
