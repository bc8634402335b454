"""The subcommands of ``penstock`` that move bytes, a module each, and what they share."""
