"""The built-in predicates, one file each; like plug-ins, they are discovered by entry point."""
