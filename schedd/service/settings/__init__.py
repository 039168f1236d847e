"""Settings of the daemon (schedd.toml): declaration, parsing, checks, display, and comparison."""
