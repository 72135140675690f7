"""Keeps the raw bytes of followed files, and with them how far each was read: the store is the checkpoint.

No rows are kept. They are made from the bytes whenever they are asked for, so that they cannot depend on when the watch
was ended.
"""

from aggregator.store.store import Store, StoreStalled
from aggregator.store.streams import Stream, StreamMeta

__all__ = ["Store", "StoreStalled", "Stream", "StreamMeta"]
