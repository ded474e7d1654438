"""Commands on archives and snapshot documents."""
