"""A process that ends with the one that started it."""

from __future__ import annotations

import os
import threading

__all__ = ["end_with_parent"]


def end_with_parent() -> None:
    """Ends this process at once when its standard input closes, which is a pipe from the parent and closes whatever the parent dies of."""

    def wait() -> None:
        while os.read(0, 1024):  # not sys.stdin, whose lock would be held when this process ends by itself
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
