// What the headers of a newer libstdc++ and glibc make objects ask for and older ones do not have.
// Linked into the shared libraries when they are linked for an older system (symbol_floor.bzl).
#include <new>

#define HASTE_HIDDEN __attribute__((visibility("hidden")))

extern "C" {
// glibc 2.32. False: reference counts stay atomic.
HASTE_HIDDEN char __libc_single_threaded = 0;
}

namespace std {

// libstdc++ 11: of allocators.
[[noreturn]] HASTE_HIDDEN void __throw_bad_array_new_length() { throw bad_alloc(); }

}  // namespace std
