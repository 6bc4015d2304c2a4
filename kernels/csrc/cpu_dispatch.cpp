#include "cpu_dispatch.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace wheelmark {
namespace {

constexpr const char* kVariable = "WHEELMARK_KERNELS_CPU";

#if defined(__x86_64__)
// Read from cpuid ourselves: __builtin_cpu_supports needs a run-time library that not every compiler links into shared objects.
// Bits: Intel SDM volume 2, CPUID; XCR0: volume 1, chapter 13.
CpuPath widest_path() {
  constexpr unsigned kFma = 1u << 12, kOsXsave = 1u << 27, kAvx = 1u << 28, kF16c = 1u << 29;
  constexpr unsigned kAvx2 = 1u << 5, kAvx512F = 1u << 16, kAvx512Dq = 1u << 17, kAvx512Bw = 1u << 30, kAvx512Vl = 1u << 31;
  constexpr unsigned kYmmState = 0x06, kZmmState = 0xe6;
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return CpuPath::scalar;
  const unsigned leaf1 = kFma | kOsXsave | kAvx | kF16c;
  if ((ecx & leaf1) != leaf1) return CpuPath::scalar;
  unsigned states, high;
  __asm__ volatile("xgetbv" : "=a"(states), "=d"(high) : "c"(0));
  if ((states & kYmmState) != kYmmState) return CpuPath::scalar;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(ebx & kAvx2)) return CpuPath::scalar;
  const unsigned leaf7 = kAvx512F | kAvx512Dq | kAvx512Bw | kAvx512Vl;
  return (ebx & leaf7) == leaf7 && (states & kZmmState) == kZmmState ? CpuPath::avx512 : CpuPath::avx2;
}
#else
CpuPath widest_path() { return CpuPath::scalar; }
#endif

struct Choice {
  CpuPath path = CpuPath::scalar;
  std::string unknown;      // what the variable held, when that is no path's name
  std::string unsupported;  // what the variable named, when this CPU cannot run it
};

Choice choose() {
  Choice choice;
  const CpuPath widest = widest_path();
  const char* wanted = std::getenv(kVariable);
  if (wanted == nullptr || *wanted == '\0') {
    choice.path = widest;
    return choice;
  }
  for (CpuPath path : {CpuPath::scalar, CpuPath::avx2, CpuPath::avx512}) {
    if (std::strcmp(wanted, name_of(path)) != 0) continue;
    if (path > widest) choice.unsupported = wanted;
    choice.path = path;
    return choice;
  }
  choice.unknown = wanted;
  return choice;
}

// Read when the library is loaded. An error must wait for a call: an exception from here would end the process.
const Choice choice_at_load = choose();

}  // namespace

const char* name_of(CpuPath path) {
  switch (path) {
    case CpuPath::avx512: return "avx512";
    case CpuPath::avx2: return "avx2";
    case CpuPath::scalar: break;
  }
  return "scalar";
}

CpuPath cpu_path() {
  const Choice& choice = choice_at_load;
  if (!choice.unknown.empty()) {
    throw std::invalid_argument(std::string(kVariable) + " is '" + choice.unknown +
                                "': use scalar, avx2 or avx512, or leave it unset for the widest that this CPU runs");
  }
  if (!choice.unsupported.empty()) {
    throw std::runtime_error(std::string(kVariable) + " asks for " + choice.unsupported + ", but the widest path that this CPU runs is " +
                             name_of(widest_path()) + ": unset it or name that one");
  }
  return choice.path;
}

}  // namespace wheelmark
