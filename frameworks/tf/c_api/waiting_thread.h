// A thread of a pool that waits for haste's next task before it goes back to the pool.
//
// To wake a thread takes 20 to 30 µs on a virtual machine, as long as some layers. In inference the
// model's next layer, or its next call, is likely near. At most one thread of the process waits,
// for 200 µs, and gives way to any other that its processor could run.
#ifndef HASTE_FRAMEWORKS_TF_C_API_WAITING_THREAD_H_
#define HASTE_FRAMEWORKS_TF_C_API_WAITING_THREAD_H_

namespace haste {
namespace tf {

// Schedules run(arg) on a pool, as HasteExecutor::schedule does.
using ScheduleFunction = void (*)(void* pool, void (*run)(void*), void* arg);

// Calls run(arg) on the thread of `pool`, not null, that waits. If none does, `schedule` calls it
// on some thread of the pool, which waits for the next task after it. Any thread may call this.
void ScheduleOnWaitingThread(ScheduleFunction schedule, void* pool, void (*run)(void*), void* arg);

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_C_API_WAITING_THREAD_H_
