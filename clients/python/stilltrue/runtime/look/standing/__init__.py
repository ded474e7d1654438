"""What stands still, and in what: for ``stilltrue stacks``, and for the counts of unexplained parties."""
