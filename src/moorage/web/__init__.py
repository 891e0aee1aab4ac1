"""The web interface: what a browser reads and asks over HTTP, and answers as HTML files.

``rows`` and ``mirror`` hold the cluster; ``hub`` sends its changes; ``sessions`` admits browsers; ``questions``
answers them in other processes; ``site`` routes requests. A browser makes no change to a cluster.
"""
