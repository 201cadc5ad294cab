"""Remembering what was made from tensors, until one of them changes in place or is gone."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

T = TypeVar("T")


class TensorMemo(Generic[T]):
    """A bounded memory keyed by the identity of tensors and checked by their version counters.

    Identity is that of the storage, so a detached view of a buffer, as compiled graphs make it,
    finds what the buffer itself left. Once a tensor has changed in place, what was made of its
    former content is dropped when it is asked for again. Tensors made under inference mode have no
    version counter; nothing made from them is remembered.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, _Entry[T]] = OrderedDict()
        self._lock = Lock()

    def get(self, tensors: tuple[Tensor, ...], extra: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` made for these tensors as they are now, calling it if need be."""
        if any(t.is_inference() for t in tensors):
            return make()
        key = (extra, *((t.data_ptr(), t.shape, t.stride()) for t in tensors))
        versions = tuple(t._version for t in tensors)
        with self._lock:
            found = self._kept.get(key)
            if found is not None and found.versions == versions and found.alive():
                self._kept.move_to_end(key)
                return found.made
            self._kept.pop(key, None)  # before the new is made: never both
        made = make()
        with self._lock:
            self._kept[key] = _Entry(
                [StorageWeakRef(t.untyped_storage()) for t in tensors], versions, made
            )
            self._forget()
        return made

    def forget_dead(self) -> None:
        """Drop what was made of tensors that are gone."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        """Drop what can never be asked for again, then the oldest past the bound."""
        for key in [key for key, entry in self._kept.items() if not entry.alive()]:
            del self._kept[key]
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


@dataclass(frozen=True)
class _Entry(Generic[T]):
    """What was made, of which tensors, at which versions."""

    storages: list[StorageWeakRef]
    versions: tuple[int, ...]
    made: T

    def alive(self) -> bool:
        return not any(storage.expired() for storage in self.storages)
