// Sixteen floats at a time: AVX-512 F, BW, VL and DQ (Skylake server, Zen 4 and later).
#if defined(__x86_64__)
#define WHEELMARK_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")))
#include "tbe_pool.h"

#include <immintrin.h>

namespace wheelmark {
namespace {

// Zero-masked forms with every lane on, which compile to the plain instructions: the plain forms make gcc 12 warn of an
// uninitialized value in its own header.
constexpr __mmask16 kAllLanes = 0xffff;

struct Sixteen {
  using Register = __m512;
  static constexpr int width = 16;
  static WHEELMARK_INLINE Register zero() { return _mm512_setzero_ps(); }
  static WHEELMARK_INLINE Register set(float value) { return _mm512_set1_ps(value); }
  static WHEELMARK_INLINE Register load(const float* row) { return _mm512_loadu_ps(row); }
  static WHEELMARK_INLINE Register load(const Half* row) {
    return _mm512_maskz_cvtph_ps(kAllLanes, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row)));
  }
  static WHEELMARK_INLINE Register load(const BFloat16* row) {
    const __m512i wide = _mm512_maskz_cvtepu16_epi32(kAllLanes, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row)));
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAllLanes, wide, 16));
  }
  static WHEELMARK_INLINE Register add(Register a, Register b) { return _mm512_add_ps(a, b); }
  static WHEELMARK_INLINE Register add_scaled(Register sum, Register row, Register factor) {
    return _mm512_fmadd_ps(row, factor, sum);
  }
  static WHEELMARK_INLINE Register divide(Register a, Register divisor) { return _mm512_div_ps(a, divisor); }
  static WHEELMARK_INLINE void store(float* out, Register a) { _mm512_storeu_ps(out, a); }
};

}  // namespace

PoolBags pool_bags_avx512(const TbeForward& call) {
  return call.dim < Sixteen::width ? pool_bags_avx2(call) : pool_bags_of<Sixteen>(call);
}

}  // namespace wheelmark
#endif
