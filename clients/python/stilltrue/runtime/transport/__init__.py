"""What gRPC's core knows of this process's connections: where an outgoing call can be, and who holds up an incoming one."""
