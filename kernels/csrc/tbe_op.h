// The operator wheelmark::tbe_forward for CPU tensors.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <optional>

namespace wheelmark {

inline constexpr const char* kTbeForwardSchema =
    "tbe_forward(Tensor weights, Tensor table_offsets, Tensor indices, Tensor offsets, Tensor? per_sample_weights=None, "
    "bool mean=False) -> Tensor";

// Shapes and layout: wheelmark_kernels/tbe.py. Checks everything, values included, whoever calls: nothing outside the tables is
// ever read. Throws std::invalid_argument (ValueError in Python) and, for an index, std::out_of_range (IndexError).
torch::stable::Tensor tbe_forward_cpu(const torch::stable::Tensor& weights, const torch::stable::Tensor& table_offsets,
                                      const torch::stable::Tensor& indices, const torch::stable::Tensor& offsets,
                                      const std::optional<torch::stable::Tensor>& per_sample_weights, bool mean);

}  // namespace wheelmark
