// Which of the CPU code paths runs on this machine.
#pragma once

namespace wheelmark {

enum class CpuPath { scalar, avx2, avx512 };

// The name users write in WHEELMARK_KERNELS_CPU: "scalar", "avx2" or "avx512".
const char* name_of(CpuPath path);

// The path chosen when the library was loaded: the widest this CPU and operating system run, or the one that the environment
// variable WHEELMARK_KERNELS_CPU named then. Later changes of the variable have no effect.
//
// Throws std::invalid_argument when the variable held no known name, std::runtime_error when it named a path that this CPU
// cannot run: whoever forces a path wants that one tested, never a quiet substitute.
CpuPath cpu_path();

}  // namespace wheelmark
