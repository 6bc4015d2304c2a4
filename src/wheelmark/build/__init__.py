"""Building: kernels ahead of time (``kernels``), the native library (``native``), the wheel (``wheel``)."""
