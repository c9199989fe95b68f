#include "frameworks/tf/xla/xla_abi.h"

#include <stdlib.h>

namespace haste {
namespace tf {
namespace {

// The oldest TensorFlow 2 whose XLA has foreign functions.
constexpr int kFirstMinor = 17;

class Finder {
 public:
  explicit Finder(const TfAbi& abi)
      : span_("N4absl12lts_" + std::to_string(abi.absl_lts) + "4SpanI") {}

  // Sets *function to the symbol `name`, in which SPAN stands for absl::Span.
  template <class Function>
  bool Find(std::string name, Function** function) const {
    const std::string placeholder = "SPAN";
    for (size_t at = name.find(placeholder); at != std::string::npos; at = name.find(placeholder)) {
      name.replace(at, placeholder.size(), span_);
    }
    *function = reinterpret_cast<Function*>(TensorFlowSymbol(name.c_str()));
    return *function != nullptr;
  }

 private:
  const std::string span_;
};

bool FindAll(XlaFunctions* xla) {
  const Finder in(*xla->abi);
  // The names are those of the Itanium C++ ABI: a substitution such as SC_ stands for a part of the
  // name before it.
  const bool by_reference = in.Find("_ZN10tensorflow18XlaOpKernelContext9SetOutputEiRKN3xla5XlaOpE",
                                    &xla->set_output_by_reference);
  return (by_reference || in.Find("_ZN10tensorflow18XlaOpKernelContext9SetOutputEiN3xla5XlaOpE",
                                  &xla->set_output)) &&
         in.Find("_ZN10tensorflow11XlaOpKernel7ComputeEPNS_15OpKernelContextE", &xla->compute) &&
         in.Find("_ZN10tensorflow18XlaOpKernelContext5InputEi", &xla->input) &&
         in.Find("_ZNK10tensorflow18XlaOpKernelContext7builderEv", &xla->builder) &&
         in.Find(
             "_ZN3xla20CustomCallWithLayoutEPNS_10XlaBuilderERKNSt7__cxx1112basic_stringIcSt11"
             "char_traitsIcESaIcEEESPANKNS_5XlaOpEEERKNS_5ShapeENSC_ISH_EES9_bNSC_IKSt4pairINS_"
             "10ShapeIndexESK_IlSL_EEEEPKNS_7LiteralENS_18CustomCallScheduleENS_"
             "20CustomCallApiVersionE",
             &xla->custom_call) &&
         in.Find("_ZN3xla15GetTupleElementENS_5XlaOpEl", &xla->tuple_element) &&
         in.Find("_ZN3xla9ShapeUtil9MakeShapeENS_13PrimitiveTypeESPANKlEE", &xla->make_shape) &&
         in.Find("_ZN3xla9ShapeUtil14MakeTupleShapeESPANKNS_5ShapeEEE", &xla->make_tuple_shape) &&
         in.Find("_ZNSt6vectorIN3xla5ShapeESaIS1_EED2Ev", &xla->destroy_shapes) &&
         in.Find("_ZN3xla3ffi12GetXlaFfiApiEv", &xla->ffi_api);
}

struct Found {
  XlaFunctions xla = {};
  std::string why;
};

Found* Find() {
  auto* found = new Found;
  found->xla.abi = RunningAbi();
  if (found->xla.abi == nullptr) {
    found->why = AbiError();
    return found;
  }
  const std::string version = found->xla.abi->version;
  found->xla.tensorflow_minor = atoi(version.c_str() + version.find('.') + 1);
  if (found->xla.tensorflow_minor < kFirstMinor) {
    found->why = "XLA of TensorFlow " + version + " has no foreign functions; 2.17 is the first";
  } else if (!FindAll(&found->xla)) {
    found->why = "this TensorFlow " + version +
                 " does not export the functions of XLA that its "
                 "wheels from PyPI export";
  }
  return found;
}

}  // namespace

const XlaFunctions* RunningXla(std::string* why) {
  static const Found* const found = Find();
  if (why != nullptr) *why = found->why;
  return found->why.empty() ? &found->xla : nullptr;
}

}  // namespace tf
}  // namespace haste
