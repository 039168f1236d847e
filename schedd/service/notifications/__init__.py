"""Outgoing notifications: notices to users, and webhooks."""
