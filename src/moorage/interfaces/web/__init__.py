"""The web interface: the data and questions of a browser over HTTP, and reports as HTML files.

``rows`` and ``mirror`` hold the cluster; ``hub`` sends its changes; ``sessions`` admits browsers; ``questions``
answers them in other processes; ``site`` routes requests. ``commands`` is the only module that changes the cluster, if
``--ui-write`` allows it.
"""
