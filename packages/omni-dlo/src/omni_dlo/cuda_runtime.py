"""Host registration through the CUDA runtime that torch has loaded.

Calls and flags: CUDA Runtime API, "Memory Management" (cudaHostRegister, cudaHostUnregister) and "Device Management"
(cudaDeviceGetAttribute).
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

__all__ = ["CudaRuntime"]

HOST_REGISTER_READ_ONLY = 0x08
"""cudaHostRegisterReadOnly: the device only reads, so a read-only mapping may be registered."""

ATTRIBUTE_READ_ONLY_SUPPORTED = 113
"""cudaDevAttrHostRegisterReadOnlySupported."""


class CudaRuntime:
    """:class:`~omni_dlo.registration.RegistrationRuntime` of one CUDA device.

    Registration goes through ``torch.cuda.cudart()``; the one attribute that torch does not expose is asked of the
    same library by ctypes.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._cudart: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]

    def can_register_read_only(self) -> bool:
        library = _loaded_cudart()
        if library is None:
            return False
        value = ctypes.c_int(0)
        code = library.cudaDeviceGetAttribute(
            ctypes.byref(value), ctypes.c_int(ATTRIBUTE_READ_ONLY_SUPPORTED), ctypes.c_int(self._index)
        )
        return bool(code == 0 and value.value)

    def register(self, address: int, nbytes: int) -> None:
        with torch.cuda.device(self._index):
            self._check(self._cudart.cudaHostRegister(address, nbytes, HOST_REGISTER_READ_ONLY), "cudaHostRegister")

    def unregister(self, address: int) -> None:
        with torch.cuda.device(self._index):
            self._check(self._cudart.cudaHostUnregister(address), "cudaHostUnregister")

    def _check(self, code: Any, call: str) -> None:
        number = int(code)
        if number:
            raise OSError(number, f"{call}: {self._cudart.cudaGetErrorString(code)}")


def _loaded_cudart() -> ctypes.CDLL | None:
    """The CUDA runtime library that torch has loaded into this process, whichever version."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "libcudart" in line}
    for path in sorted(paths):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None
