"""What every server of a process stands on: connections that speak HTTP, and certificates of an authority of its own."""
