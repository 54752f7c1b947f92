"""What a change would take, told beforehand: steps, waits, work, rows that stand against it, and advice."""
