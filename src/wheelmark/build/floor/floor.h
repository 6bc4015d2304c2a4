// Included before every source of a native library: keeps the symbol versions that it asks for at or below what
// manylinux_2_28 grants (glibc 2.28, libstdc++ of gcc 8), whatever newer glibc and libstdc++ it is built with.
#ifndef WHEELMARK_FLOOR_H
#define WHEELMARK_FLOOR_H

#include <bits/c++config.h>

// libstdc++ declares its common templates extern and so takes them from the shared library, under the version in
// which that library first had them (GLIBCXX_3.4.26 for stringstream's default constructor, for instance).
// Instantiated in the objects they need nothing.
#undef _GLIBCXX_EXTERN_TEMPLATE
#define _GLIBCXX_EXTERN_TEMPLATE 0

// Timed waits through pthread_*_clock* (glibc 2.30); without these macros libstdc++ uses the timed functions that
// have always been there.
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK
#undef _GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK

#if defined(__x86_64__)
#define WHEELMARK_GLIBC_FIRST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define WHEELMARK_GLIBC_FIRST "GLIBC_2.17"
#else
#error "no symbol floor is known for this CPU"
#endif

// The C library keeps an older version of each of these beside the new default (glibc 2.29, 2.35, 2.39); the
// assembler's .symver asks for it by name. An object that does not use the function is not changed.
#define WHEELMARK_OLD(name, version) __asm__(".symver " name ", " name "@" version);
WHEELMARK_OLD("exp", WHEELMARK_GLIBC_FIRST)
WHEELMARK_OLD("exp2", WHEELMARK_GLIBC_FIRST)
WHEELMARK_OLD("log", WHEELMARK_GLIBC_FIRST)
WHEELMARK_OLD("log2", WHEELMARK_GLIBC_FIRST)
WHEELMARK_OLD("pow", WHEELMARK_GLIBC_FIRST)
WHEELMARK_OLD("hypot", WHEELMARK_GLIBC_FIRST)
WHEELMARK_OLD("hypotf", WHEELMARK_GLIBC_FIRST)
// std::condition_variable::wait(std::unique_lock<std::mutex>&): GLIBCXX_3.4.30 since gcc 12.
WHEELMARK_OLD("_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE", "GLIBCXX_3.4.11")
#undef WHEELMARK_OLD
#undef WHEELMARK_GLIBC_FIRST

#endif
