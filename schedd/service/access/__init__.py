"""Authentication and authorisation: tokens, UNIX users, MUNGE, identity providers, roles."""
