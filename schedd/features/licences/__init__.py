"""Licences that are counted by a program, or lent by a federation."""
