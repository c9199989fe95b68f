#include "lib/plan/cost_table.h"

namespace haste {
namespace {

#define HASTE_COST(NAME, VALUE) table.NAME = VALUE;

constexpr CostTable H200() {
  CostTable table = {};
#include "lib/plan/costs_h200.inc"
  return table;
}
constexpr CostTable kH200 = H200();

}  // namespace

// Another device is another file like that, and a line here.
const CostTable& CostsOf(int, int) { return kH200; }

}  // namespace haste
