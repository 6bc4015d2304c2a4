// A GPU driver found by dlopen: CUDA's (libcuda) or ROCm's (libamdhip64). No toolkit is needed to build or to run.
//
// Every failure is an exception whose text begins with "[wheelmark:<reason>] "; wheelmark_kernels/launch.py turns
// it into KernelUnavailable with that reason. What a driver says is checked before it is used: an answer that makes
// no sense is the reason "driver-junk", never a crash.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace wheelmark {

// Throws the exception that carries `reason`.
[[noreturn]] void refuse(const char* reason, const std::string& what);

// One driver library, opened and initialised. Objects live until the process ends; all calls are thread safe.
class Driver {
 public:
  // The context that was current before `enter`, for `leave`.
  struct Previous {
    void* context = nullptr;
    int device = -1;
    bool changed = false;
  };

  virtual ~Driver() = default;

  // Version as the driver numbers it: CUDA 13000 is 13.0; HIP 60342131 is 6.3.42131.
  virtual int version() = 0;
  virtual int device_count() = 0;
  // "sm90", "gfx942": the whole name of the architecture, nothing of its features.
  virtual std::string arch(int device) = 0;
  // Bytes of shared memory (LDS) that one block may have, static and dynamic together.
  virtual std::int64_t shared_limit(int device) = 0;
  // Makes the device's context current on this thread and names it; modules belong to it.
  virtual void* enter(int device, Previous& previous) = 0;
  virtual void leave(const Previous& previous) noexcept = 0;
  // `image` must stay where it is as long as the module is used (HIP reads it later).
  virtual void* load(const void* image) = 0;
  virtual void* function(void* module, const std::string& entry) = 0;
  // Refuses where the driver knows the function's parameters and they are not of these sizes in bytes.
  virtual void check_parameters(void* function, const std::vector<std::size_t>& sizes) = 0;
  // Makes `dynamic` bytes of dynamic shared memory possible, or refuses.
  virtual void allow_shared(void* function, std::int64_t dynamic, int device) = 0;
  virtual void launch(void* function, const std::uint32_t (&grid)[3], std::uint32_t threads, std::uint32_t shared,
                      void* stream, void** arguments) = 0;
};

// The driver of "cuda" or "rocm". The library is the one that WHEELMARK_DRIVER_LIBRARY names, else the one that
// this process has already loaded, else the system's. Opened once for each name.
Driver& open_driver(const std::string& backend);

}  // namespace wheelmark
