"""The subcommands of ``penstock``, a module each, and what they share."""
