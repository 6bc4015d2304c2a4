#include "driver.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace wheelmark {

void refuse(const char* reason, const std::string& what) {
  throw std::runtime_error("[wheelmark:" + std::string(reason) + "] " + what);
}

namespace {

constexpr char kOverride[] = "WHEELMARK_DRIVER_LIBRARY";
constexpr int kInvalidValue = 1;            // CUDA_ERROR_INVALID_VALUE
constexpr std::int64_t kNoOptIn = 49152;    // bytes of shared memory that need no attribute on CUDA
constexpr std::int64_t kSaneShared = std::int64_t{1} << 24;

// Names of the results that a user meets (cuda.h, hip_runtime_api.h: the numbers agree). The driver's own strings
// are not asked for: a pointer that it hands out cannot be checked.
std::string result_name(int code) {
  static const std::map<int, const char*> kNames = {
      {1, "invalid value"},           {2, "out of memory"},        {3, "not initialized"},
      {35, "insufficient driver"},    {98, "invalid function"},    {100, "no device"},
      {101, "invalid device"},        {200, "invalid image"},      {201, "invalid context"},
      {209, "no binary for this GPU"}, {218, "invalid kernel"},    {220, "system driver mismatch"},
      {222, "unsupported toolkit"},   {300, "invalid source"},     {303, "shared object init failed"},
      {400, "invalid handle"},        {500, "not found"},          {700, "illegal address"},
      {701, "out of resources"},      {709, "context destroyed"},  {719, "launch failure"},
      {801, "not supported"},         {802, "system not ready"},   {803, "system driver mismatch"},
      {804, "compatibility mode not supported on this device"},    {999, "unknown error"}};
  const auto found = kNames.find(code);
  return std::to_string(code) + (found == kNames.end() ? "" : std::string(" (") + found->second + ")");
}

// A shared library and the functions looked up in it.
class Library {
 public:
  Library(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}

  const std::string& name() const { return name_; }

  template <class Function>
  void require(Function& function, const char* symbol) const {
    optional(function, symbol);
    if (function == nullptr) {
      refuse("driver-symbol", "the driver library " + name_ + " has no function " + symbol +
                                  "; it is too old or not a driver");
    }
  }

  template <class Function>
  void optional(Function& function, const char* symbol) const {
    function = reinterpret_cast<Function>(dlsym(handle_, symbol));
  }

 private:
  std::string name_;
  void* handle_;
};

void require_ok(int code, const char* reason, const std::string& what) {
  if (code != 0) refuse(reason, what + ": the driver answered " + result_name(code));
}

std::string on_device(int device) { return "device " + std::to_string(device); }

// CUDA's driver interface (cuda.h). The functions named are those that cuda.h 12.8 maps the plain names to.
class CudaDriver final : public Driver {
 public:
  explicit CudaDriver(Library library) : library_(std::move(library)) {
    library_.require(init_, "cuInit");
    library_.require(driver_version_, "cuDriverGetVersion");
    library_.require(count_, "cuDeviceGetCount");
    library_.require(device_, "cuDeviceGet");
    library_.require(device_attribute_, "cuDeviceGetAttribute");
    library_.require(retain_, "cuDevicePrimaryCtxRetain");
    library_.require(current_, "cuCtxGetCurrent");
    library_.require(set_current_, "cuCtxSetCurrent");
    library_.require(current_device_, "cuCtxGetDevice");
    library_.require(load_, "cuModuleLoadData");
    library_.require(function_, "cuModuleGetFunction");
    library_.require(function_attribute_, "cuFuncGetAttribute");
    library_.require(set_attribute_, "cuFuncSetAttribute");
    library_.require(launch_, "cuLaunchKernel");
    library_.optional(parameter_, "cuFuncGetParamInfo");  // CUDA 12.4 and later
    require_ok(init_(0), "driver-init", "the CUDA driver " + library_.name() + " could not be initialised");
  }

  int version() override {
    int value = 0;
    require_ok(driver_version_(&value), "driver-init", "the CUDA driver does not say its version");
    return value;
  }

  int device_count() override {
    int value = 0;
    require_ok(count_(&value), "device", "the CUDA driver does not say how many devices there are");
    if (value < 0 || value > 4096) refuse("driver-junk", "the CUDA driver counts " + std::to_string(value) + " devices");
    return value;
  }

  std::string arch(int device) override {
    const int major = attribute(device, 75), minor = attribute(device, 76);  // COMPUTE_CAPABILITY_MAJOR, _MINOR
    if (major < 1 || major > 99 || minor < 0 || minor > 9) {
      refuse("driver-junk", "the CUDA driver says that " + on_device(device) + " has compute capability " +
                                std::to_string(major) + "." + std::to_string(minor));
    }
    return "sm" + std::to_string(10 * major + minor);
  }

  std::int64_t shared_limit(int device) override {
    const std::int64_t bytes = attribute(device, 97);  // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    if (bytes <= 0 || bytes > kSaneShared) {
      refuse("driver-junk", "the CUDA driver says that a block on " + on_device(device) + " may have " +
                                std::to_string(bytes) + " bytes of shared memory");
    }
    return bytes;
  }

  void* enter(int device, Previous& previous) override {
    const int wanted = handle(device);
    int of_current = -1;
    require_ok(current_(&previous.context), "device", "the current CUDA context cannot be read");
    if (previous.context != nullptr && current_device_(&of_current) == 0 && of_current == wanted) {
      return previous.context;
    }
    void* primary = this->primary(device, wanted);
    require_ok(set_current_(primary), "device", "the context of " + on_device(device) + " cannot be made current");
    previous.changed = true;
    return primary;
  }

  void leave(const Previous& previous) noexcept override {
    if (previous.changed) set_current_(previous.context);
  }

  void* load(const void* image) override {
    void* module = nullptr;
    require_ok(load_(&module, image), "object-refused", "the CUDA driver refused the code object");
    if (module == nullptr) refuse("driver-junk", "the CUDA driver loaded the code object and gave no module");
    return module;
  }

  void* function(void* module, const std::string& entry) override {
    void* found = nullptr;
    require_ok(function_(&found, module, entry.c_str()), "entry-missing",
               "the code object has no kernel " + entry);
    if (found == nullptr) refuse("driver-junk", "the CUDA driver found the kernel " + entry + " and gave no function");
    return found;
  }

  void check_parameters(void* function, const std::vector<std::size_t>& sizes) override {
    if (parameter_ == nullptr) return;
    for (std::size_t index = 0; index <= sizes.size(); ++index) {
      std::size_t offset = 0, size = 0;
      const int code = parameter_(function, index, &offset, &size);
      const bool expected = index < sizes.size();
      if (code != 0 && code != kInvalidValue) return;  // a driver that cannot tell
      if ((code == 0) != expected || (expected && size != sizes[index])) {
        refuse("parameters", "the kernel does not take the manifest's parameters: it should have " +
                                 std::to_string(sizes.size()) + " with the scratch pointers, and number " +
                                 std::to_string(index) + (code == 0 ? " has " + std::to_string(size) + " bytes"
                                                                    : std::string(" is not there")));
      }
    }
  }

  void allow_shared(void* function, std::int64_t dynamic, int device) override {
    int fixed = 0;
    require_ok(function_attribute_(&fixed, 1, function), "shared-memory",  // SHARED_SIZE_BYTES
               "the kernel's static shared memory cannot be read");
    if (fixed < 0 || fixed > kSaneShared) {
      refuse("driver-junk", "the CUDA driver says that the kernel has " + std::to_string(fixed) +
                                " bytes of static shared memory");
    }
    const std::int64_t limit = shared_limit(device);
    if (fixed + dynamic > limit) {
      refuse("shared-memory", "the kernel needs " + std::to_string(fixed + dynamic) +
                                  " bytes of shared memory a block (" + std::to_string(fixed) + " static, " +
                                  std::to_string(dynamic) + " dynamic); " + on_device(device) + " allows " +
                                  std::to_string(limit));
    }
    if (fixed + dynamic > kNoOptIn) {
      require_ok(set_attribute_(function, 8, static_cast<int>(dynamic)), "shared-memory",  // MAX_DYNAMIC_SHARED_…
                 "the kernel was refused " + std::to_string(dynamic) + " bytes of dynamic shared memory");
    }
  }

  void launch(void* function, const std::uint32_t (&grid)[3], std::uint32_t threads, std::uint32_t shared,
              void* stream, void** arguments) override {
    require_ok(launch_(function, grid[0], grid[1], grid[2], threads, 1, 1, shared, stream, arguments, nullptr),
               "launch", "the kernel could not be launched");
  }

 private:
  int handle(int device) {
    int value = -1;
    require_ok(device_(&value, device), "device", "there is no CUDA " + on_device(device));
    return value;
  }

  int attribute(int device, int which) {
    int value = -1;
    require_ok(device_attribute_(&value, which, handle(device)), "device",
               "attribute " + std::to_string(which) + " of CUDA " + on_device(device) + " cannot be read");
    return value;
  }

  // PyTorch works in the primary context; it is retained once and kept.
  void* primary(int device, int wanted) {
    const std::lock_guard<std::mutex> lock(mutex_);
    void*& context = primary_[wanted];
    if (context == nullptr) {
      void* got = nullptr;
      require_ok(retain_(&got, wanted), "device", "the context of CUDA " + on_device(device) + " cannot be had");
      if (got == nullptr) refuse("driver-junk", "the CUDA driver gave no context for " + on_device(device));
      context = got;
    }
    return context;
  }

  Library library_;
  std::mutex mutex_;
  std::map<int, void*> primary_;
  int (*init_)(unsigned) = nullptr;
  int (*driver_version_)(int*) = nullptr;
  int (*count_)(int*) = nullptr;
  int (*device_)(int*, int) = nullptr;
  int (*device_attribute_)(int*, int, int) = nullptr;
  int (*retain_)(void**, int) = nullptr;
  int (*current_)(void**) = nullptr;
  int (*set_current_)(void*) = nullptr;
  int (*current_device_)(int*) = nullptr;
  int (*load_)(void**, const void*) = nullptr;
  int (*function_)(void**, void*, const char*) = nullptr;
  int (*function_attribute_)(int*, int, void*) = nullptr;
  int (*set_attribute_)(void*, int, int) = nullptr;
  int (*parameter_)(void*, std::size_t, std::size_t*, std::size_t*) = nullptr;
  int (*launch_)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                 void**) = nullptr;
};

// HIP's module interface (hip_runtime_api.h, ROCm 6 and 7). A context is the device itself.
class HipDriver final : public Driver {
 public:
  explicit HipDriver(Library library) : library_(std::move(library)) {
    library_.require(init_, "hipInit");
    library_.require(runtime_version_, "hipRuntimeGetVersion");
    library_.require(count_, "hipGetDeviceCount");
    library_.require(properties_, "hipGetDevicePropertiesR0600");
    library_.require(device_attribute_, "hipDeviceGetAttribute");
    library_.require(current_, "hipGetDevice");
    library_.require(set_current_, "hipSetDevice");
    library_.require(load_, "hipModuleLoadData");
    library_.require(function_, "hipModuleGetFunction");
    library_.require(function_attribute_, "hipFuncGetAttribute");
    library_.require(launch_, "hipModuleLaunchKernel");
    require_ok(init_(0), "driver-init", "the ROCm driver " + library_.name() + " could not be initialised");
  }

  int version() override {
    int value = 0;
    require_ok(runtime_version_(&value), "driver-init", "the ROCm driver does not say its version");
    return value;
  }

  int device_count() override {
    int value = 0;
    require_ok(count_(&value), "device", "the ROCm driver does not say how many devices there are");
    if (value < 0 || value > 4096) refuse("driver-junk", "the ROCm driver counts " + std::to_string(value) + " devices");
    return value;
  }

  std::string arch(int device) override {
    // hipDeviceProp_tR0600 is frozen under this symbol: 1,472 bytes, gcnArchName[256] at 1,160. The buffer is far
    // larger, so that a longer structure cannot write past it.
    constexpr std::size_t kName = 1160, kLength = 256;
    std::vector<char> properties(std::size_t{1} << 16, '\0');
    require_ok(properties_(properties.data(), device), "device", "there is no ROCm " + on_device(device));
    const char* name = properties.data() + kName;
    std::string full(name, strnlen(name, kLength));
    const std::string base = full.substr(0, full.find(':'));  // gfx90a:sramecc+:xnack-
    if (base.size() < 4 || base.size() > 16 || base.compare(0, 3, "gfx") != 0 ||
        base.find_first_not_of("0123456789abcdef", 3) != std::string::npos) {
      refuse("driver-junk", "the ROCm driver gives " + on_device(device) + " no architecture that can be read");
    }
    return base;
  }

  std::int64_t shared_limit(int device) override {
    int bytes = -1;
    require_ok(device_attribute_(&bytes, 74, device), "device",  // hipDeviceAttributeMaxSharedMemoryPerBlock
               "the LDS of ROCm " + on_device(device) + " cannot be read");
    if (bytes <= 0 || bytes > kSaneShared) {
      refuse("driver-junk", "the ROCm driver says that a block on " + on_device(device) + " may have " +
                                std::to_string(bytes) + " bytes of LDS");
    }
    return bytes;
  }

  void* enter(int device, Previous& previous) override {
    require_ok(current_(&previous.device), "device", "the current ROCm device cannot be read");
    if (previous.device != device) {
      require_ok(set_current_(device), "device", "ROCm " + on_device(device) + " cannot be made current");
      previous.changed = true;
    }
    return reinterpret_cast<void*>(static_cast<std::intptr_t>(device) + 1);
  }

  void leave(const Previous& previous) noexcept override {
    if (previous.changed) set_current_(previous.device);
  }

  void* load(const void* image) override {
    void* module = nullptr;
    require_ok(load_(&module, image), "object-refused", "the ROCm driver refused the code object");
    if (module == nullptr) refuse("driver-junk", "the ROCm driver loaded the code object and gave no module");
    return module;
  }

  void* function(void* module, const std::string& entry) override {
    void* found = nullptr;
    require_ok(function_(&found, module, entry.c_str()), "entry-missing",
               "the code object has no kernel " + entry);
    if (found == nullptr) refuse("driver-junk", "the ROCm driver found the kernel " + entry + " and gave no function");
    return found;
  }

  // HIP reads the parameters from the object's own metadata and has no function that tells them.
  void check_parameters(void*, const std::vector<std::size_t>&) override {}

  // LDS needs no permission: hipFuncSetAttribute takes host functions, and a module's function may use all there is.
  void allow_shared(void* function, std::int64_t dynamic, int device) override {
    int fixed = 0;
    require_ok(function_attribute_(&fixed, 1, function), "shared-memory",  // HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
               "the kernel's static LDS cannot be read");
    if (fixed < 0 || fixed > kSaneShared) {
      refuse("driver-junk",
             "the ROCm driver says that the kernel has " + std::to_string(fixed) + " bytes of static LDS");
    }
    const std::int64_t limit = shared_limit(device);
    if (fixed + dynamic > limit) {
      refuse("shared-memory", "the kernel needs " + std::to_string(fixed + dynamic) + " bytes of LDS a block (" +
                                  std::to_string(fixed) + " static, " + std::to_string(dynamic) + " dynamic); " +
                                  on_device(device) + " allows " + std::to_string(limit));
    }
  }

  void launch(void* function, const std::uint32_t (&grid)[3], std::uint32_t threads, std::uint32_t shared,
              void* stream, void** arguments) override {
    for (int axis = 0; axis < 3; ++axis) {  // HIP counts work items, in 32 bits an axis
      const std::uint64_t items = std::uint64_t{grid[axis]} * (axis == 0 ? threads : 1);
      if (items > UINT32_MAX) refuse("arguments", "the grid has more than 2**32 - 1 work items on axis " + std::to_string(axis));
    }
    require_ok(launch_(function, grid[0], grid[1], grid[2], threads, 1, 1, shared, stream, arguments, nullptr),
               "launch", "the kernel could not be launched");
  }

 private:
  Library library_;
  int (*init_)(unsigned) = nullptr;
  int (*runtime_version_)(int*) = nullptr;
  int (*count_)(int*) = nullptr;
  int (*properties_)(void*, int) = nullptr;
  int (*device_attribute_)(int*, int, int) = nullptr;
  int (*current_)(int*) = nullptr;
  int (*set_current_)(int) = nullptr;
  int (*load_)(void**, const void*) = nullptr;
  int (*function_)(void**, void*, const char*) = nullptr;
  int (*function_attribute_)(int*, int, void*) = nullptr;
  int (*launch_)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                 void**) = nullptr;
};

// Path of a library of this process whose file name begins with `prefix`, or empty. A ROCm build of PyTorch brings
// its own libamdhip64 under another name; a second copy would know none of PyTorch's streams.
std::string loaded_library(const std::string& prefix) {
  std::pair<std::string, std::string> search{prefix, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& wanted = *static_cast<std::pair<std::string, std::string>*>(data);
        const std::string path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
        const std::string file = path.substr(path.rfind('/') + 1);
        if (file.compare(0, wanted.first.size(), wanted.first) != 0) return 0;
        wanted.second = path;
        return 1;
      },
      &search);
  return search.second;
}

}  // namespace

Driver& open_driver(const std::string& backend) {
  const bool cuda = backend == "cuda";
  if (!cuda && backend != "rocm") refuse("arguments", "the backend is \"" + backend + "\", not cuda or rocm");
  const char* chosen = secure_getenv(kOverride);
  std::vector<std::string> names;
  if (chosen != nullptr && *chosen != '\0') {
    names = {chosen};
  } else if (cuda) {
    names = {"libcuda.so.1"};
  } else {
    const std::string loaded = loaded_library("libamdhip64.so");
    if (!loaded.empty()) names.push_back(loaded);
    names.insert(names.end(), {"libamdhip64.so.7", "libamdhip64.so.6"});
  }

  // Never destroyed: kernels may be launched until the process ends.
  static auto& mutex = *new std::mutex;
  static auto& drivers = *new std::map<std::string, std::unique_ptr<Driver>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Driver>& driver = drivers[backend + "\n" + names.front()];
  if (driver == nullptr) {
    std::string errors;
    for (const std::string& name : names) {
      void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle == nullptr) {
        const char* error = dlerror();
        errors += (errors.empty() ? "" : "; ") + std::string(error == nullptr ? name : error);
        continue;
      }
      if (cuda) {
        driver = std::make_unique<CudaDriver>(Library(name, handle));
      } else {
        driver = std::make_unique<HipDriver>(Library(name, handle));
      }
      return *driver;
    }
    refuse("driver-missing", "no " + std::string(cuda ? "CUDA" : "ROCm") + " driver library could be opened: " + errors);
  }
  return *driver;
}

}  // namespace wheelmark
