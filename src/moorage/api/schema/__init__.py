"""The fields of every kind: types, versions, defaults, and their JSON, YAML and protobuf encodings."""
