"""What the shells share of a call: made, served, stamped, and the options and pools that bound it."""
