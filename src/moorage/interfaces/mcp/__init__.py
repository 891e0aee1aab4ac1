"""``moorage mcp``: every question as a tool for agents, by the Model Context Protocol."""
