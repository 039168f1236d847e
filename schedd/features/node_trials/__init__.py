"""Trials of nodes: a node that was closed because jobs failed on it opens again after a job
succeeded there.
"""
