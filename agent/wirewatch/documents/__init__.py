"""The JSON documents of wirewatch: their types, and the functions that make them from the state."""
