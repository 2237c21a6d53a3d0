"""Error rates of the audit and coverage of its interval, on processes with an exact truth."""
