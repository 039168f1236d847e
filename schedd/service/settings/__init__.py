"""The daemon's settings: what may stand in schedd.toml, how it is read, checked, told and compared."""
