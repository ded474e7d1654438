"""What protos/ generates (make proto); nothing here is written by hand."""
