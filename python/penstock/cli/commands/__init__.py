"""One module for each command, which defines it by its own name."""
