"""The CUDA half of haste_keras, which loads it: `pip install haste-keras[cuda]` installs both.

There is nothing to import here by hand. LIBRARY is the path of libhaste_cuda.so, for programs that
use the C API: `HASTE_CUDA_LIBRARY=… program`, or `haste_load_cuda(path, &status)`.
"""

import pathlib

LIBRARY = pathlib.Path(__file__).with_name("libhaste_cuda.so")
