"""The pure half of the agent: nouns of a report, the recorder with rules 1 to 8, and the one door to protobuf."""
