"""Wait-for graphs as columns, and the algorithms on them: remainder, core, witness and victims."""
