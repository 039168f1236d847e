"""Extensions of walltimes: a run that is about to reach its walltime gets a longer one if possible."""
