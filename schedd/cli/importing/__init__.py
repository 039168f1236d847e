"""Translation of other schedulers' configurations to settings of schedd.toml."""
