"""The state and rules of calls that the sync and aio shells share, and the options and pools that bound calls."""
