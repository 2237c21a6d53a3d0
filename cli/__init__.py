"""The command line of brace-diag: parses, calls, prints; no numerics."""
