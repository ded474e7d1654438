"""The second look (rule 10): what a process reports about its suspected parties, and what may end their waits from outside."""
