"""From text to plain data: JSON and YAML as kubectl reads them, with errors that name the line."""
