"""From evidence to a verdict: the ordered rule, its checks, and the words for both."""
