"""The life of a job: taken in, started, ended, read again, told of."""
