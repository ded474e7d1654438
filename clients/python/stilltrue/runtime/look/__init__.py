"""The second look (rule 10): what a process can say of its suspected parties, and what may end their waits from outside."""
