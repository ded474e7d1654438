"""Which threads and tasks refer to an object, through which others, and the proof that nothing else does."""
