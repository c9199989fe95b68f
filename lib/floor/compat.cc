// What objects compiled by a newer system's headers, and its libstdc++.a, ask for and an older
// glibc does not have. Linked into the shared libraries when these are for an older system
// (symbol_floor.bzl).
#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>

#define HASTE_HIDDEN __attribute__((visibility("hidden")))

namespace {

struct Destructor {
  void (*run)(void*);
  void* object;
  Destructor* next;
};

pthread_key_t destructors_key;

// The last made goes first. A destructor that makes another thread_local object adds to the list.
void RunDestructors(void* list) {
  pthread_setspecific(destructors_key, list);  // it is cleared before this is called
  while (auto* first = static_cast<Destructor*>(pthread_getspecific(destructors_key))) {
    pthread_setspecific(destructors_key, first->next);
    first->run(first->object);
    std::free(first);
  }
}

int KeepDestructor(void (*run)(void*), void* object, void*) {
  static const bool made = pthread_key_create(&destructors_key, RunDestructors) == 0;
  auto* added = static_cast<Destructor*>(std::malloc(sizeof(Destructor)));
  if (!made || added == nullptr) std::abort();
  *added = {run, object, static_cast<Destructor*>(pthread_getspecific(destructors_key))};
  pthread_setspecific(destructors_key, added);
  return 0;
}

}  // namespace

extern "C" {

// glibc 2.32. False: reference counts stay atomic.
HASTE_HIDDEN char __libc_single_threaded = 0;

// glibc 2.18: destructors of thread_local objects. glibc's own where there is one: it knows of
// libraries that are unloaded.
HASTE_HIDDEN int __cxa_thread_atexit_impl(void (*run)(void*), void* object, void* library) {
  using Impl = int(void (*)(void*), void*, void*);
  static Impl* const system =
      reinterpret_cast<Impl*>(dlsym(RTLD_DEFAULT, "__cxa_thread_atexit_impl"));
  return (system != nullptr ? system : KeepDestructor)(run, object, library);
}

}  // extern "C"
