// The pooling loop, once for every vector width. Included by tbe_scalar.cpp, tbe_avx2.cpp and tbe_avx512.cpp, each of which first
// defines WHEELMARK_TARGET (the instruction set, as a function attribute) and afterwards a vector type V with
//   V::Register, V::width (floats), zero(), load(const Row*) -> widened to fp32, store(float*, r), add(a, b),
//   add_scaled(sum, row, factor), divide(a, divisor), set(float).
// Everything here has internal linkage: each of those files is compiled for other instructions, and a shared inline function
// would let the linker pick AVX-512 code for a machine without it. For the same reason nothing of std:: is instantiated here.
//
// What makes it fast was measured (docs/benchmarks/tbe-cpu.md): random rows come from DRAM, so a cursor runs some 16 KiB of rows
// ahead of the sum, across the borders of bags and tables, and prefetches into L2. Every index passes through the cursor before
// its row is read; the bounds check rides there and costs nothing.
#pragma once

#include <cstdint>

#include "tbe.h"

#if !defined(WHEELMARK_TARGET)
#error "define WHEELMARK_TARGET before including tbe_pool.h"
#endif
// gcc 12 removes calls of functions that only prefetch unless they are forced inline.
#define WHEELMARK_INLINE WHEELMARK_TARGET __attribute__((always_inline)) inline

namespace wheelmark {
namespace {

struct Half { uint16_t bits; };
struct BFloat16 { uint16_t bits; };

constexpr int64_t kCacheLine = 64;
constexpr int64_t kBytesAhead = 16384;
// More vectors than this of one row are summed in several passes over the bag: AVX2 has 16 registers.
constexpr int kMostVectors = 8;

// How far ahead, in rows. At least 16, or long rows would leave too few misses in flight; at most 256, since a short row costs
// one whole cache line.
constexpr int64_t rows_ahead(int64_t row_bytes) {
  const int64_t lines = (row_bytes + kCacheLine - 1) / kCacheLine;
  const int64_t rows = kBytesAhead / (lines * kCacheLine);
  return rows < 16 ? 16 : rows > 256 ? 256 : rows;
}

// Walks the positions of a range of bags ahead of the sum: checks each index against its table and prefetches its row.
template <class Row, class Index, int Lines>  // Lines: cache lines of a row, 0 when known only at run time
class Cursor {
 public:
  WHEELMARK_INLINE Cursor(const TbeForward& call, int64_t first_bag, int64_t last_bag)
      : call_(call),
        indices_(static_cast<const Index*>(call.indices)),
        offsets_(static_cast<const Index*>(call.offsets)),
        row_bytes_(call.dim * static_cast<int64_t>(sizeof(Row))),
        straddles_(row_bytes_ % kCacheLine != 0),
        position_(offsets_[first_bag]),
        end_(offsets_[last_bag]),
        table_(first_bag / call.batch) {
    enter_table();
  }

  // Returns false when the index at this position lies outside its table. After the last position it does nothing.
  WHEELMARK_INLINE bool step() {
    if (__builtin_expect(position_ >= table_end_, 0)) {
      if (position_ >= end_) return true;
      do ++table_;
      while (offsets_[(table_ + 1) * call_.batch] <= position_);
      enter_table();
    }
    const uint64_t row = static_cast<uint64_t>(static_cast<int64_t>(indices_[position_++]));  // negative: huge, so refused
    const bool inside = row < rows_;
    prefetch(table_rows_ + static_cast<int64_t>(inside ? row : 0) * row_bytes_);
    return inside;
  }

 private:
  WHEELMARK_INLINE void enter_table() {
    const int64_t first_row = call_.table_offsets[table_];
    rows_ = static_cast<uint64_t>(call_.table_offsets[table_ + 1] - first_row);
    table_rows_ = static_cast<const char*>(call_.weights) + first_row * row_bytes_;
    const int64_t table_end = offsets_[(table_ + 1) * call_.batch];
    table_end_ = table_end < end_ ? table_end : end_;
  }

  WHEELMARK_INLINE void prefetch(const char* row) const {
    if (Lines > 0) {
      for (int line = 0; line < Lines; ++line) __builtin_prefetch(row + line * kCacheLine, 0, 2);
    } else {
      for (int64_t byte = 0; byte < row_bytes_; byte += kCacheLine) __builtin_prefetch(row + byte, 0, 2);
    }
    if (straddles_) __builtin_prefetch(row + row_bytes_ - 1, 0, 2);
  }

  const TbeForward& call_;
  const Index* indices_;
  const Index* offsets_;
  int64_t row_bytes_;
  bool straddles_;  // rows do not begin on cache lines, so their last bytes may lie on one more
  int64_t position_, end_;
  int64_t table_;
  int64_t table_end_ = 0;
  uint64_t rows_ = 0;
  const char* table_rows_ = nullptr;
};

// Vectors columns of one bag: the first half is counted from the left of the columns, the second half from the right. They
// overlap where dim is no multiple of the width, and both then hold the same sums: no tail loop, no read past a row.
template <class V, int Vectors>
class Sums {
 public:
  explicit WHEELMARK_INLINE Sums(int64_t columns) : right_(columns - kRight * V::width) {
    for (int v = 0; v < Vectors; ++v) sums_[v] = V::zero();
  }

  template <class Row>
  WHEELMARK_INLINE void add(const Row* row) {
    for (int v = 0; v < Vectors; ++v) sums_[v] = V::add(sums_[v], V::load(row + column(v)));
  }

  template <class Row>
  WHEELMARK_INLINE void add_scaled(const Row* row, float factor) {
    const typename V::Register f = V::set(factor);
    for (int v = 0; v < Vectors; ++v) sums_[v] = V::add_scaled(sums_[v], V::load(row + column(v)), f);
  }

  WHEELMARK_INLINE void store(float* out, bool mean, int64_t count) {
    if (mean && count > 1) {
      const typename V::Register n = V::set(static_cast<float>(count));
      for (int v = 0; v < Vectors; ++v) sums_[v] = V::divide(sums_[v], n);
    }
    for (int v = 0; v < Vectors; ++v) V::store(out + column(v), sums_[v]);
  }

 private:
  static constexpr int kLeft = Vectors - Vectors / 2;
  static constexpr int kRight = Vectors / 2;
  WHEELMARK_INLINE int64_t column(int v) const {
    return v < kLeft ? v * V::width : right_ + (v - kLeft) * V::width;
  }
  int64_t right_;
  typename V::Register sums_[Vectors];
};

// One bag's columns beyond those of the first pass; its indices have been checked by then.
template <class V, class Row, class Index, bool Weighted, int Vectors>
WHEELMARK_TARGET __attribute__((noinline)) void pool_columns(const TbeForward& call, const Row* rows, int64_t begin, int64_t end,
                                                            int64_t columns, float* out) {
  const Index* indices = static_cast<const Index*>(call.indices);
  Sums<V, Vectors> sums(columns);
  for (int64_t j = begin; j < end; ++j) {
    const Row* row = rows + static_cast<int64_t>(indices[j]) * call.dim;
    if (Weighted) sums.add_scaled(row, call.per_sample_weights[j]);
    else sums.add(row);
  }
  sums.store(out, call.mean, end - begin);
}

template <class Row>
using PoolColumns = void (*)(const TbeForward&, const Row*, int64_t, int64_t, int64_t, float*);

template <class V, class Row, class Index, bool Weighted>
PoolColumns<Row> pool_columns_for(int64_t columns) {
  const int64_t vectors = (columns + V::width - 1) / V::width;
  if (vectors <= 1) return pool_columns<V, Row, Index, Weighted, 1>;
  if (vectors <= 2) return pool_columns<V, Row, Index, Weighted, 2>;
  if (vectors <= 4) return pool_columns<V, Row, Index, Weighted, 4>;
  return pool_columns<V, Row, Index, Weighted, kMostVectors>;
}

// Long: the row has more than kMostVectors vectors; the first pass takes that many, pool_columns the others.
template <class V, class Row, class Index, bool Weighted, int Vectors, bool Long>
WHEELMARK_TARGET bool pool_bags(const TbeForward& call, int64_t first_bag, int64_t last_bag) {
  constexpr int kLines = Long ? 0 : (Vectors * V::width * static_cast<int>(sizeof(Row)) + 63) / 64;
  constexpr int64_t kPass = Vectors * V::width;
  const Index* indices = static_cast<const Index*>(call.indices);
  const Index* offsets = static_cast<const Index*>(call.offsets);
  const int64_t dim = call.dim, out_stride = call.tables * dim;
  const int64_t first_columns = Long ? kPass : dim;
  // The last pass over a long row: what is left, or one vector that overlaps the columns before it.
  const int64_t left_over = dim % kPass == 0 ? kPass : dim % kPass < V::width ? V::width : dim % kPass;
  const PoolColumns<Row> middle = pool_columns<V, Row, Index, Weighted, Long ? Vectors : 1>;
  const PoolColumns<Row> last = Long ? pool_columns_for<V, Row, Index, Weighted>(left_over) : middle;

  Cursor<Row, Index, kLines> cursor(call, first_bag, last_bag);
  const int64_t ahead = rows_ahead(dim * static_cast<int64_t>(sizeof(Row)));
  bool inside = true;
  for (int64_t i = 0; i < ahead; ++i) inside &= cursor.step();
  if (!inside) return false;

  for (int64_t bag = first_bag; bag < last_bag;) {
    const int64_t table = bag / call.batch;
    const int64_t table_end = (table + 1) * call.batch;
    const int64_t stop = table_end < last_bag ? table_end : last_bag;
    const Row* rows = static_cast<const Row*>(call.weights) + call.table_offsets[table] * dim;
    float* out = call.out + (bag - table * call.batch) * out_stride + table * dim;
    for (; bag < stop; ++bag, out += out_stride) {
      const int64_t begin = offsets[bag], end = offsets[bag + 1];
      Sums<V, Vectors> sums(first_columns);
      for (int64_t j = begin; j < end; ++j) {
        if (__builtin_expect(!cursor.step(), 0)) return false;
        const Row* row = rows + static_cast<int64_t>(indices[j]) * dim;
        if (Weighted) sums.add_scaled(row, call.per_sample_weights[j]);
        else sums.add(row);
      }
      sums.store(out, call.mean, end - begin);
      if (!Long) continue;
      int64_t column = kPass;
      for (; column + kPass < dim; column += kPass) middle(call, rows + column, begin, end, kPass, out + column);
      last(call, rows + dim - left_over, begin, end, left_over, out + dim - left_over);
    }
  }
  return true;
}

template <class V, class Row, class Index, bool Weighted>
PoolBags pool_bags_of(int64_t dim) {
  const int64_t vectors = (dim + V::width - 1) / V::width;
  if (vectors <= 1) return pool_bags<V, Row, Index, Weighted, 1, false>;
  if (vectors <= 2) return pool_bags<V, Row, Index, Weighted, 2, false>;
  if constexpr (V::width == 1) {  // only rows too short for every real vector come here
    return pool_bags<V, Row, Index, Weighted, 4, false>;
  } else {
    if (vectors <= 4) return pool_bags<V, Row, Index, Weighted, 4, false>;
    if (vectors <= 6) return pool_bags<V, Row, Index, Weighted, 6, false>;
    if (vectors <= kMostVectors) return pool_bags<V, Row, Index, Weighted, kMostVectors, false>;
    return pool_bags<V, Row, Index, Weighted, kMostVectors, true>;
  }
}

template <class V, class Row, class Index>
PoolBags pool_bags_of(const TbeForward& call) {
  return call.per_sample_weights != nullptr ? pool_bags_of<V, Row, Index, true>(call.dim)
                                            : pool_bags_of<V, Row, Index, false>(call.dim);
}

template <class V, class Row>
PoolBags pool_bags_of(const TbeForward& call) {
  return call.index_type == IndexType::int32 ? pool_bags_of<V, Row, int32_t>(call) : pool_bags_of<V, Row, int64_t>(call);
}

// The loop for a call whose dim is at least one vector.
template <class V>
PoolBags pool_bags_of(const TbeForward& call) {
  switch (call.row_type) {
    case RowType::fp16: return pool_bags_of<V, Half>(call);
    case RowType::bf16: return pool_bags_of<V, BFloat16>(call);
    case RowType::fp32: break;
  }
  return pool_bags_of<V, float>(call);
}

}  // namespace
}  // namespace wheelmark
