"""Refused cores: the plan leaves out cores of a node that the server lists as free and refuses as busy."""
