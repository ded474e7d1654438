"""Wait graphs as columns, and what follows from them: the remainder, its core, the witness, the victims."""
