"""Libraries linked for an older glibc than this machine's: tools/symbol_floor.py."""

import ctypes
import pathlib
import shutil
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "tools" / "symbol_floor.py"
COMPAT = SCRIPT.parents[1] / "lib" / "floor" / "compat.cc"
FLOOR = "2_17"
# log has a newer version since glibc 2.29, pthread_create and dlmopen since 2.34.
SOURCE = """
#include <cmath>
#include <cstdio>
#include <dlfcn.h>
#include <pthread.h>
#include <stdexcept>
static void* Run(void* x) {
  *static_cast<double*>(x) = std::log(*static_cast<double*>(x));
  return x;
}
extern "C" double LogInAThread(double x) {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, Run, &x)) throw std::runtime_error("pthread_create");
  pthread_join(thread, nullptr);
  return dlmopen(LM_ID_BASE, "/none", RTLD_LAZY) || !stdout ? 0 : x;
}
"""
# Of glibc 2.32, with no older version.
TOO_NEW = 'extern "C" char __libc_single_threaded; char* Get() { return &__libc_single_threaded; }'

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


def symbol_floor(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stubs")
    made = symbol_floor("stubs", FLOOR, folder)
    assert made.returncode == 0, made.stderr
    return folder


def link(source, library, *flags):
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", library, *flags]
    return subprocess.run(command, input=source, capture_output=True, text=True)


def against(stubs):
    parts = "-Wl,--push-state,--no-as-needed -lpthread -ldl -lrt -Wl,--pop-state"
    strict = ["-Wl,-z,defs", "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL"]
    return [f"-L{stubs}", *parts.split(), *strict]


def test_linked_against_stubs_runs_here_and_passes_the_check(stubs, tmp_path):
    library = tmp_path / "library.so"
    made = link(SOURCE, library, COMPAT, *against(stubs))
    assert made.returncode == 0, made.stderr
    checked = symbol_floor("check", FLOOR, library)
    assert checked.returncode == 0, checked.stdout
    function = ctypes.CDLL(str(library)).LogInAThread
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
    assert function(1.0) == 0.0
    assert function(2.0) == pytest.approx(0.6931471805599453)


def test_the_check_fails_without_stubs(tmp_path):
    library = tmp_path / "library.so"
    assert link(TOO_NEW, library).returncode == 0
    checked = symbol_floor("check", FLOOR, library)
    assert checked.returncode == 1
    assert "does not need libpthread.so.0" in checked.stdout
    if "asks for" not in checked.stdout:
        pytest.skip("this machine's glibc is not newer")
    assert "asks for __libc_single_threaded@GLIBC_2.32" in checked.stdout


def test_what_has_no_old_version_does_not_link(stubs, tmp_path):
    made = link(TOO_NEW, tmp_path / "library.so", *against(stubs))
    assert made.returncode != 0
    assert "__libc_single_threaded" in made.stderr


def test_cpp_of_another_library_fails_the_check(tmp_path):
    assert (
        link("int Other(); int Get() { return Other(); }", tmp_path / "library.so").returncode == 0
    )
    checked = symbol_floor("check", FLOOR, tmp_path / "library.so")
    assert checked.returncode == 1
    assert "asks for _Z5Otherv" in checked.stdout


# A destructor that makes another thread_local object, which is destroyed too, and last.
THREAD_LOCALS = """
#include <string>
#include <thread>
static std::string log;
struct Noisy {
  const char* name;
  bool more;
  ~Noisy();
};
static void Make(const char* name, bool more) {
  if (more) { thread_local Noisy first = {name, true}; (void)first; }
  else { thread_local Noisy second = {name, false}; (void)second; }
}
Noisy::~Noisy() { log += name; if (more) Make("second", false); }
int main() {
  std::thread([] { Make("first ", true); }).join();
  return log == "first second" ? 0 : 1;
}
"""


@pytest.mark.parametrize("glibc", ["its own", "none"])
def test_thread_locals_are_destroyed_with_and_without_help_of_glibc(glibc, tmp_path):
    none = "static void* None(void*, const char*) { return nullptr; }\n#define dlsym None\n"
    (tmp_path / "first.h").write_text("#include <dlfcn.h>\n" + none * (glibc == "none"))
    (tmp_path / "main.cc").write_text(THREAD_LOCALS)
    flags = ["-O2", "-pthread", "-static-libstdc++", "-include", tmp_path / "first.h"]
    program = tmp_path / "program"
    subprocess.run(["g++", *flags, COMPAT, tmp_path / "main.cc", "-o", program], check=True)
    assert subprocess.run([program]).returncode == 0
