"""What other modules of a program may do with its locks: imported by near misses only."""
