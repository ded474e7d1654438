"""The resolvers, one file per library or kind of wait."""
