"""The second look (protocol rule 10): what a process reports about its suspected parties, and what may end their waits."""
