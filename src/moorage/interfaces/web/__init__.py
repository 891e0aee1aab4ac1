"""The web interface: the data and questions of a browser over HTTP, and reports as HTML files.

``rows`` and ``mirror`` hold the cluster, ``history`` its past; ``change_stream`` sends its changes; ``questions`` answers
browsers, in ``question_processes``; ``site`` admits them and routes requests, for a live cluster (``live_site``), that of
``moorage up`` (``embedded_site``) and one that was read from files (``report_server``). ``kubectl_commands`` is the only module
that changes the cluster, if ``--ui-write`` allows it.
"""
