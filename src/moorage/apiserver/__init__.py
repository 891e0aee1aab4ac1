"""The embedded API server: a store with Kubernetes' semantics, and the HTTP that kubectl and clients speak to it.

From the wire inwards: ``http`` reads requests and answers them; ``access`` says who is asking and what they may; ``tables`` is
what kubectl prints; ``storage`` keeps the objects; ``admission`` and ``fields`` decide what an object becomes on its way in,
whole or in part; ``schema`` knows the shape of every kind; ``vocabulary`` is what all of them speak of. Imports point that way.
"""
