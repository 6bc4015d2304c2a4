// Pooled table-batched embedding forward on the CPU. Layout of the arguments: wheelmark_kernels/tbe.py.
#pragma once

#include <cstdint>

namespace wheelmark {

enum class RowType { fp32, fp16, bf16 };
enum class IndexType { int32, int64 };

// One call, after its arguments were checked; the values of `indices` were not.
struct TbeForward {
  const void* weights;              // [rows, dim] of row_type
  const int64_t* table_offsets;     // [tables + 1]
  const void* indices;              // [offsets[tables * batch]] of index_type
  const void* offsets;              // [tables * batch + 1] of index_type
  const float* per_sample_weights;  // like indices, or null
  float* out;                       // [batch, tables * dim]
  int64_t tables, batch, dim;
  bool mean;
  RowType row_type;
  IndexType index_type;
};

// Pools bags first_bag..last_bag-1, numbered table * batch + bag. Returns false as soon as an index of these bags is found to lie
// outside its table: such a row is never read, and what was written until then is of no use.
using PoolBags = bool (*)(const TbeForward& call, int64_t first_bag, int64_t last_bag);

// One for each code path. Rows shorter than one vector of a path are handed to the next narrower one.
PoolBags pool_bags_scalar(const TbeForward& call);
#if defined(__x86_64__)
PoolBags pool_bags_avx2(const TbeForward& call);
PoolBags pool_bags_avx512(const TbeForward& call);
#endif

}  // namespace wheelmark
