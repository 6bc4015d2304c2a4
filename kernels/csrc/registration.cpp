// What this library gives to PyTorch's dispatcher. Registration only forwards: nothing is computed or checked here.
#include <torch/csrc/stable/library.h>

#include <string>

#include "cpu_dispatch.h"
#include "launcher.h"
#include "tbe_op.h"

namespace {

std::string cpu_dispatch() { return wheelmark::name_of(wheelmark::cpu_path()); }

}  // namespace

STABLE_TORCH_LIBRARY(wheelmark, m) {
  m.def(wheelmark::kTbeForwardSchema);
  m.def("cpu_dispatch() -> str");
  for (const char* schema : wheelmark::kLauncherSchemas) m.def(schema);
}

STABLE_TORCH_LIBRARY_IMPL(wheelmark, CPU, m) { m.impl("tbe_forward", TORCH_BOX(&wheelmark::tbe_forward_cpu)); }

// Functions of plain values, and of a byte buffer that never leaves the CPU.
STABLE_TORCH_LIBRARY_IMPL(wheelmark, CompositeExplicitAutograd, m) {
  m.impl("cpu_dispatch", TORCH_BOX(&cpu_dispatch));
  m.impl("code_object", TORCH_BOX(&wheelmark::code_object));
  m.impl("prepare", TORCH_BOX(&wheelmark::prepare));
  m.impl("launch", TORCH_BOX(&wheelmark::launch));
  m.impl("device_arch", TORCH_BOX(&wheelmark::device_arch));
  m.impl("device_count", TORCH_BOX(&wheelmark::device_count));
  m.impl("driver_version", TORCH_BOX(&wheelmark::driver_version));
}
