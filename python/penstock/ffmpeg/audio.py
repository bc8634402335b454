"""The sound of a file as arrays."""
