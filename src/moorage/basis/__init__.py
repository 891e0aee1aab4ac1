"""What every floor stands on: printable text, words, and files."""
