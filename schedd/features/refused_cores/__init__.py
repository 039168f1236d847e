"""Refused cores: cores of a node that the server lists as free, but refuses as busy. The plan does not use
them.
"""
