"""Commands for users, with the standard library only, so that they start fast."""
