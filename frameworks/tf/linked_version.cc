// For a program that has TensorFlow linked in, and need not let libraries see its symbols.
#include "tensorflow/c/c_api.h"

extern "C" const char* haste_tf_linked_version(void) { return TF_Version(); }
