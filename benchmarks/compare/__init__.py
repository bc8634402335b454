"""Compares the hot paths of a commit with those of this tree, in turn."""
