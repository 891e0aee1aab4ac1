"""The embedded API server: the HTTP API that kubectl and clients use, on a store with Kubernetes' semantics (``rules.store``).

Packages, from the wire inwards (imports point that way): ``http`` reads requests and sends responses; ``access``
authenticates and authorizes; ``tables`` prints objects the way ``kubectl get`` shows them; ``schema`` tells clients of the
kinds; ``sqlite_log`` keeps the objects on disk.
"""
