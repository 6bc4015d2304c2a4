// The path for every CPU: four floats at a time in the compiler's own vector type (SSE2, NEON or plain code), one at a time for
// rows of fewer than four.
#define WHEELMARK_TARGET
#include "tbe_pool.h"

#include <cstring>

namespace wheelmark {
namespace {

typedef float Float4 __attribute__((vector_size(16)));
typedef uint32_t UInt4 __attribute__((vector_size(16)));
typedef uint16_t UShort4 __attribute__((vector_size(8)));

// IEEE half to single, exactly, without a branch. A normal number's exponent grows by 112, that of infinity and NaN by 224. A
// subnormal m * 2^-24 is what is left of 0.5 + m * 2^-24 when 0.5 is taken away: right even where subnormal floats are flushed.
WHEELMARK_INLINE Float4 widen(const Half* row) {
  UShort4 halves;
  std::memcpy(&halves, row, sizeof halves);
  const UInt4 bits = __builtin_convertvector(halves, UInt4);
  const UInt4 magnitude = bits & 0x7fff;
  const UInt4 infinite = (UInt4)(magnitude >= 0x7c00) & 0x38000000;
  const UInt4 normal = (magnitude << 13) + 0x38000000 + infinite;
  const UInt4 subnormal = (UInt4)((Float4)(magnitude | 0x3f000000) - 0.5f);
  const UInt4 is_subnormal = (UInt4)(magnitude < 0x400);
  return (Float4)(((subnormal & is_subnormal) | (normal & ~is_subnormal)) | ((bits & 0x8000) << 16));
}

WHEELMARK_INLINE Float4 widen(const BFloat16* row) {
  UShort4 halves;
  std::memcpy(&halves, row, sizeof halves);
  return (Float4)(__builtin_convertvector(halves, UInt4) << 16);
}

WHEELMARK_INLINE Float4 widen(const float* row) {
  Float4 values;
  std::memcpy(&values, row, sizeof values);
  return values;
}

struct Four {
  using Register = Float4;
  static constexpr int width = 4;
  static WHEELMARK_INLINE Register zero() { return Float4{}; }
  static WHEELMARK_INLINE Register set(float value) { return Float4{value, value, value, value}; }
  template <class Row>
  static WHEELMARK_INLINE Register load(const Row* row) { return widen(row); }
  static WHEELMARK_INLINE Register add(Register a, Register b) { return a + b; }
  static WHEELMARK_INLINE Register add_scaled(Register sum, Register row, Register factor) { return sum + row * factor; }
  static WHEELMARK_INLINE Register divide(Register a, Register divisor) { return a / divisor; }
  static WHEELMARK_INLINE void store(float* out, Register a) { std::memcpy(out, &a, sizeof a); }
};

struct One {
  using Register = float;
  static constexpr int width = 1;
  static WHEELMARK_INLINE Register zero() { return 0.0f; }
  static WHEELMARK_INLINE Register set(float value) { return value; }
  template <class Row>
  static WHEELMARK_INLINE Register load(const Row* row) {
    const Row four[4] = {*row, *row, *row, *row};
    return widen(four)[0];
  }
  static WHEELMARK_INLINE Register add(Register a, Register b) { return a + b; }
  static WHEELMARK_INLINE Register add_scaled(Register sum, Register row, Register factor) { return sum + row * factor; }
  static WHEELMARK_INLINE Register divide(Register a, Register divisor) { return a / divisor; }
  static WHEELMARK_INLINE void store(float* out, Register a) { *out = a; }
};

}  // namespace

PoolBags pool_bags_scalar(const TbeForward& call) {
  return call.dim < Four::width ? pool_bags_of<One>(call) : pool_bags_of<Four>(call);
}

}  // namespace wheelmark
