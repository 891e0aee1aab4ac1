"""``python -m moorage``: the same as the ``moorage`` command."""

from moorage.interfaces.cli.main import main

main()
