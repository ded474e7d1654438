"""Types of options, options that several commands have, and what the shell completes them with."""
