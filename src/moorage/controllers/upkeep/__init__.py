"""What tidies up: owners that are gone, namespaces that end, pods nobody asks for."""
