"""Policy periods: other rules of the site at certain times, such as prime and non-prime time."""
