"""The built-in predicates, one file each; they are discovered by entry point, as plug-ins are."""
