"""Rules of releases after the newest one: variants of plugins, named for the release in which they begin."""
