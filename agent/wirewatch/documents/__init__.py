"""The JSON documents that wirewatch gives, as types, and what makes them."""
