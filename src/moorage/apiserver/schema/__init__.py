"""The shape of what is served: every kind's fields, how they look in JSON, YAML and protobuf, and what clients learn of it."""
