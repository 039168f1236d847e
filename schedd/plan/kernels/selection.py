"""Selection of the smallest elements, for searches."""

from schedd.plan.kernels.jit import inner
from schedd.plan.kernels.layout import (
    Ints,
)


@inner
def select_kth(a: Ints, n: int, k: int) -> int:
    """Return the ``k``-th smallest (from 1) of ``a[:n]``, which is reordered (quickselect)."""
    lo = 0
    hi = n - 1
    k -= 1
    while lo < hi:
        pivot = a[(lo + hi) >> 1]
        i = lo
        j = hi
        while i <= j:
            while a[i] < pivot:
                i += 1
            while a[j] > pivot:
                j -= 1
            if i <= j:
                a[i], a[j] = a[j], a[i]
                i += 1
                j -= 1
        if k <= j:
            hi = j
        elif k >= i:
            lo = i
        else:
            break
    return int(a[k])


@inner
def sift_down(heap: Ints, n: int, key: Ints, at: int) -> None:
    """Sift the element at ``at`` down to its place in ``heap[:n]``, a heap of indices by (key, index)."""
    i = heap[at] if at < n else 0
    while 2 * at + 1 < n:
        child = 2 * at + 1
        if child + 1 < n and (
            key[heap[child + 1]] < key[heap[child]]
            or (key[heap[child + 1]] == key[heap[child]] and heap[child + 1] < heap[child])
        ):
            child += 1
        j = heap[child]
        if key[i] < key[j] or (key[i] == key[j] and i < j):
            break
        heap[at] = j
        at = child
    if at < n:
        heap[at] = i


@inner
def sift_up(heap: Ints, key: Ints, at: int) -> None:
    """Sift the element at ``at``, which was appended to the heap before it, up to its place."""
    i = heap[at]
    while at > 0:
        parent = (at - 1) >> 1
        j = heap[parent]
        if key[j] < key[i] or (key[j] == key[i] and j < i):
            break
        heap[at] = j
        at = parent
    heap[at] = i
