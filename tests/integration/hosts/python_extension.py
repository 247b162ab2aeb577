"""A Python program whose extension modules call the CUDA runtime. Python opens them RTLD_LOCAL, so no
libcudart is in global scope, and two of them may bring two runtimes.

usage: python_extension.py LIBRARY=EXPECTED_RESULT...
"""
import ctypes
import sys

for argument in sys.argv[1:]:
    path, expected = argument.rsplit("=", 1)
    library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    library.user_bound_to.restype = ctypes.c_char_p
    bound = library.user_bound_to().decode()
    assert "libcachealloc" in bound, f"cudaMalloc is bound to {bound}: this shows nothing"
    for _ in range(3):
        result = library.user_allocate()
        assert result == int(expected), f"{path}: {result}, expected {expected}"
print("host ok")
