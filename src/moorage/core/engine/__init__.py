"""Queue, state and cycle as one machine: facts in, decisions out."""
