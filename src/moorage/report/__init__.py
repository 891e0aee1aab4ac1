"""Reports on a simulation run: tables for people and documents for programs."""
