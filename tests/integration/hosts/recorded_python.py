"""Python as recorded_host.c: CUDA and C++, both opened by ctypes. Usage: recorded_python.py PLUGIN"""
import ctypes
import sys

driver = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_LOCAL)
plugin = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_LOCAL)
context = ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
for _ in range(3):
    unwound = plugin.plugin_run_recorded(driver.cuMemAlloc_v2, driver.cuMemFree_v2,
                                         driver.cuCtxSetCurrent, context)
    assert unwound == 12, f"{unwound} of 12 frames unwound"


def nested(depth, pointer):
    return nested(depth - 1, pointer) if depth else driver.cuMemAlloc_v2(ctypes.byref(pointer), 4096)


for depth in range(20):
    pointer = ctypes.c_uint64()
    assert nested(depth, pointer) == 0 and driver.cuMemFree_v2(pointer) == 0
print("host ok")
