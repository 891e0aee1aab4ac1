"""Let ``python -m benchmarks`` run the command."""

from benchmarks.command import main

main()
