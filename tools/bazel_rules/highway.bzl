"""@local_highway: the headers of Google Highway, which is used header-only.

Looked for in $HIGHWAY_ROOT (a checkout, or a prefix with include/), else in /usr/include and
/usr/local/include.
"""

# The oldest version that lib/cpu is built with.
_OLDEST = (1, 0, 3)

def _version(ctx, include):
    found = {}
    headers = [ctx.path(include + "/hwy/" + h) for h in ["highway.h", "base.h"]]  # by version
    for line in "\n".join([ctx.read(h) for h in headers if h.exists]).split("\n"):
        words = [w for w in line.split(" ") if w]
        if len(words) == 3 and words[0] == "#define" and words[1].startswith("HWY_") and words[2].isdigit():
            found[words[1]] = int(words[2])
    return tuple([found.get(n, 0) for n in ["HWY_MAJOR", "HWY_MINOR", "HWY_PATCH"]])

def _impl(ctx):
    root = ctx.os.environ.get("HIGHWAY_ROOT", "")
    candidates = [root, root + "/include"] if root else ["/usr/include", "/usr/local/include"]
    found = [c for c in candidates if ctx.path(c + "/hwy/highway.h").exists]
    advice = ("install it (Debian, Ubuntu: apt-get install libhwy-dev), or set HIGHWAY_ROOT to a " +
            "checkout of Google Highway %d.%d.%d or newer." % _OLDEST)
    if not found:
        fail("Google Highway: no hwy/highway.h in %s; %s" % (" or ".join(candidates), advice))
    version = _version(ctx, found[0])
    if version < _OLDEST:
        fail("Google Highway %d.%d.%d in %s is too old; %s" % (version + (found[0], advice)))
    ctx.symlink(found[0] + "/hwy", "hwy")
    ctx.file("BUILD", """load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "highway",
    hdrs = glob(["hwy/*.h", "hwy/ops/*.h"]),
    includes = ["."],
    visibility = ["//visibility:public"],
)
""")

highway_configure = repository_rule(
    implementation = _impl,
    environ = ["HIGHWAY_ROOT"],
    local = True,
    configure = True,
)
