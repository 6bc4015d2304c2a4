// Definitions, hidden in each native library, of what newer headers refer to and manylinux_2_28 does not grant.
// The linker drops those that a library does not use (--gc-sections).
#include <new>

#define WHEELMARK_HIDDEN __attribute__((visibility("hidden")))

// libstdc++ 11 and later read this variable of glibc 2.32 before they use atomics. Zero means "there may be
// threads", which is always right.
extern "C" WHEELMARK_HIDDEN char __libc_single_threaded;
char __libc_single_threaded = 0;

// GLIBCXX_3.4.29: what std::allocator calls where a size does not fit.
namespace std {
WHEELMARK_HIDDEN void __throw_bad_array_new_length() { throw bad_array_new_length(); }
}  // namespace std

// glibc 2.38: strtol and its like under C23 rules (0b prefixes), which _GNU_SOURCE turns on. The old functions are
// reached by their assembler names.
extern "C" {
long wheelmark_strtol(const char*, char**, int) __asm__("strtol");
unsigned long wheelmark_strtoul(const char*, char**, int) __asm__("strtoul");
long long wheelmark_strtoll(const char*, char**, int) __asm__("strtoll");
unsigned long long wheelmark_strtoull(const char*, char**, int) __asm__("strtoull");

WHEELMARK_HIDDEN long __isoc23_strtol(const char* text, char** end, int base) {
  return wheelmark_strtol(text, end, base);
}
WHEELMARK_HIDDEN unsigned long __isoc23_strtoul(const char* text, char** end, int base) {
  return wheelmark_strtoul(text, end, base);
}
WHEELMARK_HIDDEN long long __isoc23_strtoll(const char* text, char** end, int base) {
  return wheelmark_strtoll(text, end, base);
}
WHEELMARK_HIDDEN unsigned long long __isoc23_strtoull(const char* text, char** end, int base) {
  return wheelmark_strtoull(text, end, base);
}
}
