"""S11, as an oracle: what was planted where only secrets are must not be found in anything that was said."""

TRACE = "Traceback (most recent call last)"


def leaks(secrets, said):
    """Return which secret, or trace of a program's inside, stands in which of these texts, by their names."""
    return sorted((where, what) for where, text in said.items() for what in (*secrets, TRACE) if what in text)
