"""Explanations and summaries: what a run came to, as tables for people and documents for programs."""
