"""What compiled kernels need of the environment, checked before numba reads it."""

import os

from teccl.errors import InputError

_THREADS = "NUMBA_NUM_THREADS"


def check_environment() -> None:
    """Refuse a number of threads that numba does not take.

    Raises
    ------
    InputError
        If the environment names something else than a positive number.
    """
    value = os.environ.get(_THREADS)
    if value is None:
        return
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise InputError(
            f"environment variable {_THREADS} is {value[:40]!r}; give a positive number or unset it"
        )
