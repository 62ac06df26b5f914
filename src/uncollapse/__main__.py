"""`python -m uncollapse` is the command line."""
