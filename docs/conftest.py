"""Pages are run as they stand."""

import contextlib

# With pykeops installed the first import prints a line, which a page would take for the output of its example.
with contextlib.suppress(ImportError):
    import gpytorch  # noqa: F401
