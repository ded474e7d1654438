"""The look for termination and quiescence: what may still act in a process that declares itself idle."""
