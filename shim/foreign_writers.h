// Libraries that reach device memory in ways no entry point of the driver shows.
//
// Some write it without any CUDA call: a barrier on the device does not hold them up, so with one
// of them at work only finished blocks may be handed out. Others submit work to the device through
// the driver's private tables, on streams that nobody sees: with one of them no work counts as
// totally ordered.
#pragma once

namespace cachealloc::shim {

// True once a library for RDMA, GDRCopy or GPUDirect Storage is loaded *and* has its device file
// open: PyTorch links libcufile into every process and hardly any uses it. Called on growth; costs
// a walk over the loaded libraries, and one over /proc/self/fd where one is loaded.
bool foreign_writers_present();

// True once such a submitter (OptiX, NVDEC, NVENC, optical flow) is loaded. The same walk.
bool unseen_submitters_present();

} // namespace cachealloc::shim
