// Launches precompiled kernels through the driver. registration.cpp gives these functions to the dispatcher as
// wheelmark::code_object, prepare, launch, device_arch, device_count and driver_version. Pointers and streams
// are plain integers: what the caller passes is what the driver gets.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace wheelmark {

// Schemas, in the order of the functions below.
inline constexpr const char* kLauncherSchemas[] = {
    "code_object(Tensor image, str sha256, str backend, str arch, str entry, str layout, int scratch, int threads, "
    "int shared) -> int",
    "prepare(int handle, int device) -> ()",
    "launch(int handle, int device, int[] grid, int stream, int[] arguments, int[] scratch) -> ()",
    "device_arch(str backend, int device) -> str",
    "device_count(str backend) -> int",
    "driver_version(str backend) -> int",
};

// Takes a copy of `image` (uint8, CPU, contiguous), refuses it unless its sha256 is the one given, and gives a
// handle to it; equal calls give equal handles. No driver is touched.
//   arch     the one architecture that may run it: "sm90", "gfx942"
//   entry    the kernel's symbol
//   layout   dtypes of the parameters in launch order, separated by commas: "pointer,pointer,i64,i32,fp32"
//   scratch  how many pointers (global scratch, profile scratch) follow the parameters
//   threads  of a block; shared: bytes of dynamic shared memory
std::int64_t code_object(const torch::stable::Tensor& image, std::string sha256, std::string backend,
                         std::string arch, std::string entry, std::string layout, std::int64_t scratch,
                         std::int64_t threads, std::int64_t shared);

// Loads the code object for `device` now, so that a refusal comes before any work is queued.
void prepare(std::int64_t handle, std::int64_t device);

// Queues the kernel on `stream` (the driver's handle; 0: the default stream) of `device`. Loads it where that was
// not done in the device's current context. A number is passed as its value, a float as its bit pattern, a pointer
// as its address. `scratch` is empty (null pointers) or has one address for each scratch pointer.
void launch(std::int64_t handle, std::int64_t device, std::vector<std::int64_t> grid, std::int64_t stream,
            std::vector<std::int64_t> arguments, std::vector<std::int64_t> scratch);

std::string device_arch(std::string backend, std::int64_t device);
std::int64_t device_count(std::string backend);
std::int64_t driver_version(std::string backend);

}  // namespace wheelmark
