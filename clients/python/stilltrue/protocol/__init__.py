"""The pure half of the agent: the types of a report, the recorder with protocol rules 1 to 8, and the protobuf conversion."""
