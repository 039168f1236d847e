"""Who goes first, and who may: priorities, fair shares, promises, accounts, quarantine."""
