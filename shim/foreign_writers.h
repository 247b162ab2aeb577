// Libraries that write device memory without any CUDA call: a barrier on the device does not hold
// them up, so with one of them at work only finished blocks may be handed out.
#pragma once

namespace cachealloc::shim {

// True once a library for RDMA, GDRCopy or GPUDirect Storage is loaded *and* has its device file
// open: PyTorch links libcufile into every process and hardly any uses it. Called on growth; costs
// a walk over the loaded libraries, and one over /proc/self/fd where one is loaded.
bool foreign_writers_present();

} // namespace cachealloc::shim
