// SHA-256 of a byte range (FIPS 180-4), so that the bytes which are hashed are the bytes which the driver gets.
#pragma once

#include <cstddef>
#include <string>

namespace wheelmark {

// Lower-case hexadecimal digest of `size` bytes at `data`.
std::string sha256_hex(const unsigned char* data, std::size_t size);

}  // namespace wheelmark
