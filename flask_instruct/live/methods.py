"""What the extension offers of live pages: the broadcasts, the bus, who watches, and who has to be verified anew."""

from __future__ import annotations

from . import broadcasts
from .bus import Bus
from .presence import viewers
from .signed_out import disconnect


class LiveMethods:
    """The methods of :class:`~flask_instruct.Instruct` that need no more than live pages."""

    broadcast_append_to = staticmethod(broadcasts.broadcast_append_to)
    broadcast_prepend_to = staticmethod(broadcasts.broadcast_prepend_to)
    broadcast_replace_to = staticmethod(broadcasts.broadcast_replace_to)
    broadcast_update_to = staticmethod(broadcasts.broadcast_update_to)
    broadcast_remove_to = staticmethod(broadcasts.broadcast_remove_to)
    broadcast_before_to = staticmethod(broadcasts.broadcast_before_to)
    broadcast_after_to = staticmethod(broadcasts.broadcast_after_to)
    broadcast_refresh_to = staticmethod(broadcasts.broadcast_refresh_to)
    broadcast_text_to = staticmethod(broadcasts.broadcast_text_to)

    viewers = staticmethod(viewers)
    disconnect = staticmethod(disconnect)

    @property
    def bus(self) -> Bus:
        """The current app's bus: ``instruct.bus.publish(stream, html)`` sends at once, whatever is committed.

        :raises ConfigurationError: when the app does not use the package.
        """
        return broadcasts.live().bus
