"""Extenders: the HTTP services that a configuration names beside the plugins, and what they answer."""
