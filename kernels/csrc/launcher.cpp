#include "launcher.h"

#include <torch/headeronly/core/DeviceType.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "driver.h"
#include "sha256.h"

namespace wheelmark {
namespace {

constexpr std::int64_t kMaxThreads = 1024;
constexpr std::int64_t kMaxScratch = 8;
constexpr std::size_t kMaxParameters = 512;

// How one parameter is passed: its width, and the range that its value must lie in.
struct Slot {
  std::size_t size;
  std::int64_t least, most;
  bool any;  // every 64-bit pattern is right
};

Slot slot(const std::string& dtype) {
  static const std::map<std::string, Slot> kSlots = {
      {"pointer", {8, 0, 0, true}},
      {"i1", {1, 0, 1, false}},
      {"i8", {1, INT8_MIN, INT8_MAX, false}},
      {"i16", {2, INT16_MIN, INT16_MAX, false}},
      {"i32", {4, INT32_MIN, INT32_MAX, false}},
      {"i64", {8, 0, 0, true}},
      {"u8", {1, 0, UINT8_MAX, false}},
      {"u16", {2, 0, UINT16_MAX, false}},
      {"u32", {4, 0, UINT32_MAX, false}},
      {"u64", {8, 0, 0, true}},
      {"fp32", {4, 0, UINT32_MAX, false}},
      {"fp64", {8, 0, 0, true}}};
  const auto found = kSlots.find(dtype);
  if (found == kSlots.end()) refuse("manifest", "a parameter of dtype \"" + dtype + "\" cannot be passed");
  return found->second;
}

std::vector<Slot> read_layout(const std::string& layout) {
  std::vector<Slot> slots;
  for (std::size_t begin = 0; begin < layout.size() && slots.size() <= kMaxParameters;) {
    const std::size_t end = std::min(layout.find(',', begin), layout.size());
    slots.push_back(slot(layout.substr(begin, end - begin)));
    begin = end + 1;
  }
  if (slots.size() > kMaxParameters) refuse("manifest", "a kernel has too many parameters");
  return slots;
}

// A code object loaded into one context.
struct Loaded {
  Driver* driver;
  int device;
  void* context;
  void* function;
};

// One kernel of one code object, for any number of devices and contexts. Lives until the process ends.
struct CodeObject {
  std::vector<unsigned char> image;  // stays: HIP reads it after loading
  std::string backend, arch, entry;
  std::vector<Slot> slots;
  std::size_t scratch;
  std::uint32_t threads, shared;
  std::mutex mutex;
  std::deque<Loaded> loaded;

  CodeObject(std::vector<unsigned char> bytes, std::string backend_, std::string arch_, std::string entry_,
             std::vector<Slot> slots_, std::size_t scratch_, std::uint32_t threads_, std::uint32_t shared_)
      : image(std::move(bytes)), backend(std::move(backend_)), arch(std::move(arch_)), entry(std::move(entry_)),
        slots(std::move(slots_)), scratch(scratch_), threads(threads_), shared(shared_) {}
};

struct Registry {
  std::shared_mutex mutex;
  std::deque<std::unique_ptr<CodeObject>> objects;  // handle: index + 1
  std::map<std::string, std::int64_t> handles;
};

Registry& registry() {
  static auto& value = *new Registry;
  return value;
}

CodeObject& find(std::int64_t handle) {
  Registry& all = registry();
  const std::shared_lock<std::shared_mutex> lock(all.mutex);
  if (handle < 1 || static_cast<std::uint64_t>(handle) > all.objects.size()) {
    refuse("arguments", "there is no code object with handle " + std::to_string(handle));
  }
  return *all.objects[handle - 1];
}

int device_index(std::int64_t device) {
  if (device < 0 || device > 4095) refuse("device", "there is no device " + std::to_string(device));
  return static_cast<int>(device);
}

// Makes a device's context current while it lives.
class Entered {
 public:
  Entered(Driver& driver, int device) : driver_(driver) {
    try {
      context = driver.enter(device, previous_);
    } catch (...) {
      driver.leave(previous_);
      throw;
    }
  }
  ~Entered() { driver_.leave(previous_); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

  void* context = nullptr;

 private:
  Driver& driver_;
  Driver::Previous previous_;
};

// The object's function in the current context; loads it where that was not done. Call with the context entered.
void* function_in(CodeObject& object, Driver& driver, int device, void* context) {
  const std::lock_guard<std::mutex> lock(object.mutex);
  for (const Loaded& item : object.loaded) {
    if (item.driver == &driver && item.device == device && item.context == context) return item.function;
  }
  const std::string arch = driver.arch(device);
  if (arch != object.arch) {
    refuse("arch", "the code object is for " + object.arch + " and device " + std::to_string(device) + " is " + arch);
  }
  void* module = driver.load(object.image.data());
  void* function = driver.function(module, object.entry);
  std::vector<std::size_t> sizes;
  for (const Slot& item : object.slots) sizes.push_back(item.size);
  sizes.insert(sizes.end(), object.scratch, sizeof(void*));
  driver.check_parameters(function, sizes);
  driver.allow_shared(function, object.shared, device);
  object.loaded.push_back({&driver, device, context, function});
  return function;
}

}  // namespace

std::int64_t code_object(const torch::stable::Tensor& image, std::string sha256, std::string backend,
                         std::string arch, std::string entry, std::string layout, std::int64_t scratch,
                         std::int64_t threads, std::int64_t shared) {
  if (image.scalar_type() != torch::headeronly::ScalarType::Byte || image.dim() != 1 || !image.is_contiguous() ||
      !image.is_cpu()) {
    refuse("arguments", "a code object's image is a contiguous uint8 tensor of one dimension on the CPU");
  }
  if (backend != "cuda" && backend != "rocm") refuse("arguments", "the backend is \"" + backend + "\", not cuda or rocm");
  if (image.numel() < 64) refuse("digest", "a code object of " + std::to_string(image.numel()) + " bytes is no ELF file");
  if (threads < 1 || threads > kMaxThreads) refuse("manifest", "a block has " + std::to_string(threads) + " threads");
  if (shared < 0 || shared > INT32_MAX) refuse("manifest", "shared memory of " + std::to_string(shared) + " bytes");
  if (scratch < 0 || scratch > kMaxScratch) refuse("manifest", std::to_string(scratch) + " scratch pointers");
  if (entry.empty() || entry.find('\0') != std::string::npos) refuse("manifest", "the entry is no symbol");
  std::vector<Slot> slots = read_layout(layout);

  // From here on only this copy counts: nobody can change it between the digest and the driver.
  const auto* data = static_cast<const unsigned char*>(image.const_data_ptr());
  std::vector<unsigned char> bytes(data, data + image.numel());
  const std::string found = sha256_hex(bytes.data(), bytes.size());
  if (found != sha256) {
    refuse("digest", "the code object with the kernel " + entry + " has sha256 " + found + ", the manifest says " + sha256);
  }

  const std::string key = sha256 + "\n" + backend + "\n" + arch + "\n" + entry + "\n" + layout + "\n" +
                          std::to_string(scratch) + "\n" + std::to_string(threads) + "\n" + std::to_string(shared);
  Registry& all = registry();
  const std::unique_lock<std::shared_mutex> lock(all.mutex);
  std::int64_t& handle = all.handles[key];
  if (handle == 0) {
    all.objects.push_back(std::make_unique<CodeObject>(
        std::move(bytes), std::move(backend), std::move(arch), std::move(entry), std::move(slots),
        static_cast<std::size_t>(scratch), static_cast<std::uint32_t>(threads), static_cast<std::uint32_t>(shared)));
    handle = static_cast<std::int64_t>(all.objects.size());
  }
  return handle;
}

void prepare(std::int64_t handle, std::int64_t device) {
  CodeObject& object = find(handle);
  const int index = device_index(device);
  Driver& driver = open_driver(object.backend);
  const Entered entered(driver, index);
  function_in(object, driver, index, entered.context);
}

void launch(std::int64_t handle, std::int64_t device, std::vector<std::int64_t> grid, std::int64_t stream,
            std::vector<std::int64_t> arguments, std::vector<std::int64_t> scratch) {
  CodeObject& object = find(handle);
  const int index = device_index(device);
  if (arguments.size() != object.slots.size()) {
    refuse("arguments", object.entry + " takes " + std::to_string(object.slots.size()) + " arguments, " +
                            std::to_string(arguments.size()) + " were given");
  }
  if (!scratch.empty() && scratch.size() != object.scratch) {
    refuse("arguments", object.entry + " takes " + std::to_string(object.scratch) + " scratch pointers, " +
                            std::to_string(scratch.size()) + " were given");
  }
  if (grid.size() != 3) refuse("arguments", "a grid has three numbers");
  std::uint32_t blocks[3];
  for (int axis = 0; axis < 3; ++axis) {  // CUDA's limits (compute capability 3.0 and later); HIP's are no lower
    const std::int64_t most = axis == 0 ? INT32_MAX : 65535;
    if (grid[axis] < 1 || grid[axis] > most) {
      refuse("arguments", "a grid of " + std::to_string(grid[axis]) + " blocks on axis " + std::to_string(axis) +
                              "; the limits are 1 and " + std::to_string(most));
    }
    blocks[axis] = static_cast<std::uint32_t>(grid[axis]);
  }

  // Little-endian hosts only (x86-64, aarch64): a narrow value is the low end of its 64-bit slot.
  std::vector<void*> pointers;
  pointers.reserve(arguments.size() + object.scratch);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Slot& item = object.slots[i];
    if (!item.any && (arguments[i] < item.least || arguments[i] > item.most)) {
      refuse("arguments", "argument " + std::to_string(i) + " of " + object.entry + " is " +
                              std::to_string(arguments[i]) + " and does not fit " + std::to_string(item.size) + " bytes");
    }
    pointers.push_back(&arguments[i]);
  }
  scratch.resize(object.scratch, 0);
  for (std::int64_t& address : scratch) pointers.push_back(&address);

  Driver& driver = open_driver(object.backend);
  const Entered entered(driver, index);
  void* function = function_in(object, driver, index, entered.context);
  driver.launch(function, blocks, object.threads, object.shared,
                reinterpret_cast<void*>(static_cast<std::intptr_t>(stream)), pointers.data());
}

std::string device_arch(std::string backend, std::int64_t device) {
  return open_driver(backend).arch(device_index(device));
}

std::int64_t device_count(std::string backend) { return open_driver(backend).device_count(); }

std::int64_t driver_version(std::string backend) { return open_driver(backend).version(); }

}  // namespace wheelmark
