"""From reports to current verdicts and incidents: the driver, members, predicates at work."""
