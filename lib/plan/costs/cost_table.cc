#include "lib/plan/costs/cost_table.h"

namespace haste {
namespace {

#define HASTE_COST(NAME, VALUE) table.NAME = VALUE;

constexpr CostTable H200() {
  CostTable table = {};
#include "lib/plan/costs/costs_h200.inc"
  return table;
}
constexpr CostTable kH200 = H200();

// What fits begin with.
constexpr CostTable Untimed() {
  CostTable table = {};
#include "lib/plan/costs/costs_untimed.inc"
  return table;
}
constexpr CostTable kUntimed = Untimed();

}  // namespace

// Another device is another file like these, and a line here.
const CostTable& CostsOf(int sm_major, int) { return sm_major == 9 ? kH200 : kUntimed; }

}  // namespace haste
