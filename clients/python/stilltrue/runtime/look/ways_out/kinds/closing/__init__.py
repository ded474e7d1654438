"""The ways out that close something: by code, by the end of a block, or when the last reference is dropped."""
