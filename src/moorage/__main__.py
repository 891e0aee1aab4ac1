"""``python -m moorage``: the same as the ``moorage`` command."""

from moorage.cli.main import main

main()
