// Eight floats at a time: AVX2 with F16C and FMA (Haswell, Zen and later).
#if defined(__x86_64__)
#define WHEELMARK_TARGET __attribute__((target("avx2,fma,f16c")))
#include "tbe_pool.h"

#include <immintrin.h>

namespace wheelmark {
namespace {

struct Eight {
  using Register = __m256;
  static constexpr int width = 8;
  static WHEELMARK_INLINE Register zero() { return _mm256_setzero_ps(); }
  static WHEELMARK_INLINE Register set(float value) { return _mm256_set1_ps(value); }
  static WHEELMARK_INLINE Register load(const float* row) { return _mm256_loadu_ps(row); }
  static WHEELMARK_INLINE Register load(const Half* row) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row)));
  }
  static WHEELMARK_INLINE Register load(const BFloat16* row) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static WHEELMARK_INLINE Register add(Register a, Register b) { return _mm256_add_ps(a, b); }
  static WHEELMARK_INLINE Register add_scaled(Register sum, Register row, Register factor) {
    return _mm256_fmadd_ps(row, factor, sum);
  }
  static WHEELMARK_INLINE Register divide(Register a, Register divisor) { return _mm256_div_ps(a, divisor); }
  static WHEELMARK_INLINE void store(float* out, Register a) { _mm256_storeu_ps(out, a); }
};

}  // namespace

PoolBags pool_bags_avx2(const TbeForward& call) {
  return call.dim < Eight::width ? pool_bags_scalar(call) : pool_bags_of<Eight>(call);
}

}  // namespace wheelmark
#endif
