"""The fields of every kind, their JSON, YAML and protobuf encodings, and the discovery and OpenAPI documents."""
