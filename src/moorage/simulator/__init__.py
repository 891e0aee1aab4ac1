"""The laboratory: what people have is read, workloads become pods, and the engine runs over them in virtual time."""
