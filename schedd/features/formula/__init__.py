"""Priority formula: jobs are ranked by an expression, as with OpenPBS's `job_sort_formula`."""
