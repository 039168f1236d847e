"""Fair share: a tree of target shares, decayed usage, and charge factors."""
