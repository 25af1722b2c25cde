"""How something long ends early."""


class Stopped(Exception):
    """The queue was stopped while something of it was being executed."""
