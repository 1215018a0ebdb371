"""The `njax` command. One file a command, each importing what is heavy only when it runs.

Errors meant for users (`NjaxError`) become one line on stderr and exit code 1.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the `njax` script."""
    from njax.cli.app import app
    from njax.errors import NjaxError

    try:
        app()
    except NjaxError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
