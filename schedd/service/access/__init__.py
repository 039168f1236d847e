"""Who asks, and what they may: tokens, UNIX users, MUNGE, identity providers, roles."""
