"""The embedded API server: a store with Kubernetes' semantics, and the HTTP API that kubectl and clients use.

Sub-packages, from the wire inwards (imports point that way): ``http`` reads requests and sends responses; ``access``
authenticates and authorizes; ``tables`` prints objects the way ``kubectl get`` shows them; ``storage`` holds the objects;
``admission`` defaults, admits and validates objects; ``fields`` implements patches and field management; ``schema``
describes every kind; ``vocabulary`` holds the types that all of them share.
"""
