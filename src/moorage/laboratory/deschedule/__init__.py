"""What a descheduler would evict, where the pods go, and whether it comes to an end."""
