// For a program that has TensorFlow linked in, and may hide TensorFlow's symbols from libraries.
#include "tensorflow/c/c_api.h"

extern "C" const char* haste_tf_linked_version(void) { return TF_Version(); }
