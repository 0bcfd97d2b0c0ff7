"""`wirewatch check`: the daemon's verdict or a poll of its own, and the answer that follows."""
