"""What `wirewatch check` is made of: the daemon's word or a look of its own, and the answer to be given."""
