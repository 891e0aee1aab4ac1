"""What clients learn of the kinds: discovery and OpenAPI documents, and bodies in the form that a client asks for."""
