"""Licences whose number is counted by a program, or lent by a federation."""
