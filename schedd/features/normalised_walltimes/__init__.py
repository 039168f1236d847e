"""Walltimes for nodes of a reference speed, scaled to the nodes where each job is planned."""
