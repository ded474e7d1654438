"""From reports to verdicts: pure, no gRPC, no clock."""
