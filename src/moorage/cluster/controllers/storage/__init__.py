"""Controllers for volumes and devices: bind, provision, and create claims."""
