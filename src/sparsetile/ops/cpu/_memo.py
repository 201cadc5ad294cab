"""Remembering what was made from tensors, until one of them changes in place or is gone."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

T = TypeVar("T")


class TensorMemo(Generic[T]):
    """A bounded memory keyed by the identity and the version counter of tensors.

    Identity is that of the storage, so a detached view of a buffer, as compiled graphs make it,
    finds what the buffer itself left. Tensors made under inference mode have no version counter;
    nothing made from them is remembered.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, tuple[list[StorageWeakRef], T]] = OrderedDict()
        self._lock = Lock()

    def get(self, tensors: tuple[torch.Tensor, ...], extra: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` made for these tensors as they are now, calling it if need be."""
        if any(t.is_inference() for t in tensors):
            return make()
        key = (extra, *((t.data_ptr(), t._version, t.shape, t.stride()) for t in tensors))
        with self._lock:
            found = self._kept.get(key)
            if found is not None and not any(ref.expired() for ref in found[0]):
                self._kept.move_to_end(key)
                return found[1]
        made = make()
        with self._lock:
            self._kept[key] = ([StorageWeakRef(t.untyped_storage()) for t in tensors], made)
            self._kept.move_to_end(key)
            self._forget()
        return made

    def _forget(self) -> None:
        """Drop what can never be asked for again, then the oldest past the bound."""
        if len(self._kept) > self._most:
            for key in [k for k, (refs, _) in self._kept.items() if any(r.expired() for r in refs)]:
                del self._kept[key]
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
