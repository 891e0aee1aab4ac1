"""Which volume or device a claim gets: bind, provision, and create the claims of pods, as the controllers of Kubernetes do."""
