"""What every long-running process needs: logs and a clock."""
