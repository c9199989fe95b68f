// A pool's thread that waits for the next task: it takes it, and only if it is of its own pool; it
// goes back to the pool if none comes; no task is lost or runs twice.
#include "frameworks/tf/c_api/waiting_thread.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/lib/check.h"

namespace haste_test {
namespace {

// Runs each closure on a thread of its own.
class Pool {
 public:
  ~Pool() { Join(); }

  void Schedule(void (*run)(void*), void* arg) {
    haste::tf::ScheduleOnWaitingThread(StartThread, this, run, arg);
  }
  int started() const { return started_.load(); }
  // Returns once no thread waits.
  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // The pool of the calling thread.
  static const Pool* Own() { return own_; }

 private:
  static void StartThread(void* pool, void (*run)(void*), void* arg) {
    Pool* const self = static_cast<Pool*>(pool);
    self->started_.fetch_add(1);
    const std::lock_guard<std::mutex> lock(self->mutex_);
    self->threads_.emplace_back([self, run, arg] {
      own_ = self;
      run(arg);
    });
  }

  static thread_local const Pool* own_;
  std::atomic<int> started_{0};
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

thread_local const Pool* Pool::own_ = nullptr;

// A task that says where it ran, and how often.
struct Note {
  static void Run(void* note) {
    Note* const self = static_cast<Note*>(note);
    self->pool = Pool::Own();
    self->thread = std::this_thread::get_id();
    self->runs.fetch_add(1, std::memory_order_release);
  }
  void Await() const {
    while (runs.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  }

  const Pool* pool = nullptr;
  std::thread::id thread;
  std::atomic<int> runs{0};
};

// How long the system keeps a thread from running is not known. So tasks are scheduled until one
// meets a thread that waits.
constexpr int kAttempts = 2000;

void TestTakesNextTask() {
  Pool pool;
  std::thread::id before;
  bool taken = false;
  for (int i = 0; i < kAttempts && !taken; ++i) {
    const int started = pool.started();
    Note note;
    pool.Schedule(Note::Run, &note);
    note.Await();
    taken = pool.started() == started;
    EXPECT_TRUE(!taken || note.thread == before, "task %d ran on a thread that did not wait", i);
    before = note.thread;
  }
  EXPECT_TRUE(taken, "each of %d tasks started a thread", kAttempts);
}

void TestGoesBack() {
  Pool pool;
  for (int i = 1; i <= 3; ++i) {
    Note note;
    pool.Schedule(Note::Run, &note);
    pool.Join();
    EXPECT_TRUE(note.runs == 1 && pool.started() == i, "task %d: %d runs, %d threads", i,
                note.runs.load(), pool.started());
  }
}

void TestKeepsPoolsApart() {
  Pool pools[2];
  for (int i = 0; i < 2000; ++i) {
    Pool& pool = pools[i / 2 % 2];  // each twice, so that some of its tasks meet a thread
    Note note;
    pool.Schedule(Note::Run, &note);
    note.Await();
    EXPECT_TRUE(note.pool == &pool, "task %d ran on a thread of the other pool", i);
  }
}

// A pool whose queue is full runs a task at once. Then nothing waits.
void TestFullPool() {
  Note notes[3];
  int runs = 0;
  for (Note& note : notes) {
    haste::tf::ScheduleOnWaitingThread(
        [](void* pool, void (*run)(void*), void* arg) {
          ++*static_cast<int*>(pool);
          run(arg);
        },
        &runs, Note::Run, &note);
    EXPECT_TRUE(note.runs == 1 && note.thread == std::this_thread::get_id(), "%d runs",
                note.runs.load());
  }
  EXPECT_TRUE(runs == 3, "%d tasks reached the pool", runs);
}

void TestManyCallers() {
  constexpr int kCallers = 4, kTasks = 300;
  Pool pools[2];
  std::vector<Note> notes(kCallers * kTasks);
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&, c] {
      for (int i = 0; i < kTasks; ++i) {
        Note& note = notes[c * kTasks + i];
        pools[c % 2].Schedule(Note::Run, &note);
        if (i % 3 != 0) note.Await();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (Pool& pool : pools) pool.Join();
  for (int i = 0; i < kCallers * kTasks; ++i) {
    EXPECT_TRUE(notes[i].runs == 1, "task %d ran %d times", i, notes[i].runs.load());
    EXPECT_TRUE(notes[i].pool == &pools[i / kTasks % 2], "task %d ran in the other pool", i);
  }
}

}  // namespace
}  // namespace haste_test

int main() {
  haste_test::TestTakesNextTask();
  haste_test::TestGoesBack();
  haste_test::TestKeepsPoolsApart();
  haste_test::TestFullPool();
  haste_test::TestManyCallers();
  return haste_test::Report("waiting_thread_test");
}
