"""A pod that is assumed on a node: what is recorded of it, and the plugins that reserve, permit and bind."""
