"""Other schedulers' configurations in terms of schedd.toml."""
