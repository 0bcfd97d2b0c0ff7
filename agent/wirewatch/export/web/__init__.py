"""Who may ask over the port, and how: TLS, users, tokens, and the file that says so."""
