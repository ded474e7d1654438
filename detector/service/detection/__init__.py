"""From reports to verdicts and incidents: the driver, the members, and the evaluation of predicates."""
