"""What every command can say in one line, and then end with."""


class Unusable(Exception):
    """Something that was given cannot be used; the text is one line for the user, exit code 78."""
