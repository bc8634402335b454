"""Linux."""
