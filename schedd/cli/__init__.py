"""The commands. Each is a module of this package that is imported only when it is used: see `main`."""
