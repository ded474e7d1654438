"""The parties and other actors that can end a suspect's wait: what each can reach, and what its code does with it."""
