"""Functions that fail, to take the place of others."""


def failing(error):
    """Return a function that raises an error, whatever it is given."""

    def fail(*_args, **_options):
        raise error

    return fail
