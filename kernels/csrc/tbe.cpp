#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <atomic>
#include <sstream>
#include <stdexcept>
#include <string>

#include "cpu_dispatch.h"
#include "tbe.h"
#include "tbe_op.h"

namespace wheelmark {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Below this many bytes moved, waking a second thread costs more than it saves (some microseconds).
constexpr int64_t kBytesForThreads = 256 * 1024;

template <class Error = std::invalid_argument, class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream text;
  text << "wheelmark::tbe_forward: ";
  (text << ... << parts);
  throw Error(text.str());
}

std::string shape_of(const Tensor& tensor) {
  std::string text = "[";
  for (int64_t d = 0; d < tensor.dim(); ++d) text += (d ? ", " : "") + std::to_string(tensor.size(d));
  return text + "]";
}

void check_device(const char* name, const Tensor& tensor) {
  if (!tensor.is_cpu()) refuse(name, " is not on the CPU, but another argument is: move them to one device");
}

RowType row_type_of(const Tensor& weights) {
  switch (weights.scalar_type()) {
    case ScalarType::Float: return RowType::fp32;
    case ScalarType::Half: return RowType::fp16;
    case ScalarType::BFloat16: return RowType::bf16;
    default: refuse("weights must be float32, float16 or bfloat16: convert the tables once, before use");
  }
}

IndexType index_type_of(const Tensor& indices) {
  switch (indices.scalar_type()) {
    case ScalarType::Int: return IndexType::int32;
    case ScalarType::Long: return IndexType::int64;
    default: refuse("indices must be int32 or int64");
  }
}

// Starts at 0, never falls, ends at `total`.
template <class Index>
void check_offsets(const char* name, const Index* offsets, int64_t count, int64_t total, const char* total_name) {
  if (offsets[0] != 0) refuse(name, "[0] is ", offsets[0], ": the first must be 0");
  bool falls = false;
  for (int64_t i = 1; i < count; ++i) falls |= offsets[i] < offsets[i - 1];
  if (falls) {
    int64_t i = 1;
    while (offsets[i] >= offsets[i - 1]) ++i;
    refuse(name, "[", i, "] is ", offsets[i], ", less than the ", offsets[i - 1], " before it: offsets must never fall");
  }
  if (offsets[count - 1] != total) {
    refuse(name, "[", count - 1, "], the last, is ", offsets[count - 1], ": it must be ", total_name, ", ", total);
  }
}

// Bags below `first` hold about `work` of the work, where a bag costs its rows and one more for the write of its result.
template <class Index>
int64_t cut(const Index* offsets, int64_t bags, int64_t work) {
  int64_t low = 0, high = bags;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (offsets[middle] + middle < work) low = middle + 1;
    else high = middle;
  }
  return low;
}

// A bag belongs to one thread and is summed in its own order: the result does not depend on the number of threads.
template <class Index>
bool pool(const TbeForward& call, PoolBags pool_bags) {
  const Index* offsets = static_cast<const Index*>(call.offsets);
  const int64_t bags = call.tables * call.batch;
  const int64_t work = offsets[bags] + bags;
  const int64_t row_bytes = call.dim * (call.row_type == RowType::fp32 ? 4 : 2);
  const int64_t parts =
      work < kBytesForThreads / row_bytes ? 1 : static_cast<int64_t>(torch::stable::get_num_threads());
  if (parts == 1) return pool_bags(call, 0, bags);
  std::atomic<bool> good{true};
  torch::stable::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    const int64_t share = work / parts + 1;
    const int64_t first = cut(offsets, bags, begin * share);
    const int64_t last = end == parts ? bags : cut(offsets, bags, end * share);
    if (first < last && !pool_bags(call, first, last)) good.store(false, std::memory_order_relaxed);
  });
  return good.load();
}

// Finds again, from the start and in order, what a thread has met: the message names the same position whatever ran first.
template <class Index>
[[noreturn]] void refuse_index(const TbeForward& call) {
  const Index* indices = static_cast<const Index*>(call.indices);
  const Index* offsets = static_cast<const Index*>(call.offsets);
  for (int64_t table = 0; table < call.tables; ++table) {
    const int64_t rows = call.table_offsets[table + 1] - call.table_offsets[table];
    for (int64_t j = offsets[table * call.batch]; j < offsets[(table + 1) * call.batch]; ++j) {
      if (indices[j] >= 0 && indices[j] < rows) continue;
      refuse<std::out_of_range>("indices[", j, "] is ", indices[j], ", outside table ", table, ", which has ", rows,
                                " rows: indices count from 0 within their table");
    }
  }
  refuse<std::out_of_range>("an index was outside its table, but no longer is: indices changed during the call");
}

PoolBags pool_bags_for(const TbeForward& call) {
  switch (cpu_path()) {
#if defined(__x86_64__)
    case CpuPath::avx512: return pool_bags_avx512(call);
    case CpuPath::avx2: return pool_bags_avx2(call);
#endif
    default: return pool_bags_scalar(call);
  }
}

template <class Index>
void run(const TbeForward& call, int64_t indices) {
  const int64_t bags = call.tables * call.batch;
  check_offsets("offsets", static_cast<const Index*>(call.offsets), bags + 1, indices, "the number of indices");
  if (bags != 0 && !pool<Index>(call, pool_bags_for(call))) refuse_index<Index>(call);
}

}  // namespace

Tensor tbe_forward_cpu(const Tensor& weights, const Tensor& table_offsets, const Tensor& indices, const Tensor& offsets,
                       const std::optional<Tensor>& per_sample_weights, bool mean) {
  check_device("weights", weights);
  check_device("table_offsets", table_offsets);
  check_device("indices", indices);
  check_device("offsets", offsets);
  TbeForward call{};
  call.row_type = row_type_of(weights);
  call.index_type = index_type_of(indices);
  call.mean = mean;
  if (table_offsets.scalar_type() != ScalarType::Long) refuse("table_offsets must be int64");
  if (offsets.scalar_type() != indices.scalar_type()) refuse("offsets and indices must have one dtype: convert one of them");
  if (weights.dim() != 2 || weights.size(1) == 0) {
    refuse("weights must be [rows, dim] with dim at least 1, not ", shape_of(weights));
  }
  if (!weights.is_contiguous()) refuse("weights must be contiguous: call .contiguous() once, before use");
  if (table_offsets.dim() != 1 || table_offsets.size(0) < 2) {
    refuse("table_offsets must be [tables + 1] with at least one table, not ", shape_of(table_offsets));
  }
  if (indices.dim() != 1) refuse("indices must have one dimension, not ", shape_of(indices));
  call.tables = table_offsets.size(0) - 1;
  if (offsets.dim() != 1 || offsets.size(0) < 1 || (offsets.size(0) - 1) % call.tables != 0) {
    refuse("offsets must be [", call.tables, " tables * batch + 1], not ", shape_of(offsets));
  }
  call.batch = (offsets.size(0) - 1) / call.tables;
  call.dim = weights.size(1);

  const Tensor kept_tables = torch::stable::contiguous(table_offsets);
  const Tensor kept_indices = torch::stable::contiguous(indices);
  const Tensor kept_offsets = torch::stable::contiguous(offsets);
  std::optional<Tensor> kept_factors;
  if (per_sample_weights.has_value()) {
    check_device("per_sample_weights", *per_sample_weights);
    if (per_sample_weights->scalar_type() != ScalarType::Float) refuse("per_sample_weights must be float32");
    if (per_sample_weights->dim() != 1 || per_sample_weights->size(0) != indices.size(0)) {
      refuse("per_sample_weights must be ", shape_of(indices), " like indices, not ", shape_of(*per_sample_weights));
    }
    kept_factors = torch::stable::contiguous(*per_sample_weights);
  }
  call.weights = weights.const_data_ptr();
  call.table_offsets = static_cast<const int64_t*>(kept_tables.const_data_ptr());
  call.indices = kept_indices.const_data_ptr();
  call.offsets = kept_offsets.const_data_ptr();
  // Without indices there is nothing to scale, and an empty tensor may have no address to tell "weighted" by.
  call.per_sample_weights =
      kept_factors.has_value() ? static_cast<const float*>(kept_factors->const_data_ptr()) : nullptr;
  check_offsets("table_offsets", call.table_offsets, call.tables + 1, weights.size(0), "the number of rows");

  Tensor out = torch::stable::new_empty(weights, {call.batch, call.tables * call.dim}, ScalarType::Float);
  call.out = static_cast<float*>(out.mutable_data_ptr());
  if (call.index_type == IndexType::int32) run<int32_t>(call, indices.size(0));
  else run<int64_t>(call, indices.size(0));
  return out;
}

}  // namespace wheelmark
