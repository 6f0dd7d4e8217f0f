// The times that threads spend on and off the processors: each run of a thread writes one record when it stops.
//
// Each thread has a slot, from the first event that names it until it ends. The key of a slot is the thread's id in the initial namespace; records have
// ids in the recorder's namespace. A wakeup is noted at `sched_wakeup`, which the kernel passes after the thread has stopped; `sched_waking`, which
// may come before that, is where the waker is known.
#include "follow.h"

// The fields of the source `sched`, and no padding.
struct record {
    __u64 stopped_ns;
    __u8 nulls;
    __u8 why;
    __u16 cpu;
    __u32 pid;
    __u64 ran_ns;
    __u64 off_ns;
    __u64 wait_ns;
    __u32 tid;
    __u32 woken_by;
    __u32 prev_tid;
    __u32 next_tid;
    char comm[16];
    __u64 cgroup;
};

// The bits of `nulls`.
enum { NO_OFF = 1, NO_WAIT = 2, NOT_WOKEN = 4 };

// The values of `why`; src/sched.rs has the same.
enum why { PREEMPTED, SLEEPS, BLOCKED, STOPPED, ENDED, IDLE };

// The states of a thread that the kernel gives to `sched_switch`.
enum {
    TASK_UNINTERRUPTIBLE = 0x2,
    TASK_STOPPED_OR_TRACED = 0x4 | 0x8,
    TASK_DEAD = 0x10 | 0x20 | 0x80,
    TASK_NOLOAD = 0x400,
};

struct slot {
    __u64 running_ns;  // 0: the thread does not run
    __u64 stopped_ns;  // 0: unknown
    __u64 runnable_ns; // 0: the thread waits for something other than a processor, or unknown
    __u64 off_ns;      // before this run
    __u64 wait_ns;
    __u32 waker;       // of the latest wakeup
    __u32 woken_by;    // before this run
    __u32 prev_tid;
    __u8 nulls;
    __u8 is_woken;
    __u8 padding[2];
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1 << 16);
    __type(key, __u32);
    __type(value, struct slot);
} slots SEC(".maps");

const volatile __u64 off_ns_min;

// The slot of a thread that is recorded; none if it is not.
static __always_inline struct slot *slot_of(struct task_struct *task) {
    __u32 pid, tid = BPF_CORE_READ(task, pid);
    struct slot *slot, fresh = {};
    struct name name;

    if (!tid)
        return 0;
    slot = bpf_map_lookup_elem(&slots, &tid);
    if (slot)
        return slot;
    pid = process_of(task);
    if (!pid)
        return 0;
    if (by_name)
        BPF_CORE_READ_INTO(&name, task, comm);
    if (!is_selected_process(pid, &name))
        return 0;
    bpf_map_update_elem(&slots, &tid, &fresh, BPF_ANY);
    slot = bpf_map_lookup_elem(&slots, &tid);
    if (!slot)
        count(NO_SLOT);
    return slot;
}

static __always_inline enum why reason(int preempt, __u32 state) {
    if (state & TASK_DEAD)
        return ENDED;
    if (preempt || !state)
        return PREEMPTED;
    if (state & TASK_STOPPED_OR_TRACED)
        return STOPPED;
    if (state & TASK_NOLOAD)
        return IDLE;
    return state & TASK_UNINTERRUPTIBLE ? BLOCKED : SLEEPS;
}

// The current thread stops.
static __always_inline void stop(struct slot *slot, __u64 now, enum why why, struct task_struct *next) {
    struct record *record;
    __u64 id;

    if (!is_in_cgroup())
        return;
    if (!slot->running_ns) {
        count(UNPAIRED);
        return;
    }
    if (is_short(slot->nulls & NO_OFF ? 0 : slot->off_ns, off_ns_min))
        return;
    record = RESERVE(record);
    if (!record)
        return;
    id = recorded_id();
    record->stopped_ns = now;
    record->nulls = slot->nulls;
    record->why = why;
    record->cpu = bpf_get_smp_processor_id();
    record->pid = id >> 32;
    record->tid = id;
    record->ran_ns = now - slot->running_ns;
    record->off_ns = slot->off_ns;
    record->wait_ns = slot->wait_ns;
    record->woken_by = slot->woken_by;
    record->prev_tid = slot->prev_tid;
    record->next_tid = thread_of(next);
    bpf_get_current_comm(record->comm, sizeof record->comm);
    record->cgroup = bpf_get_current_cgroup_id();
    SUBMIT(record);
}

// A thread begins to run after `prev`.
static __always_inline void start(struct slot *slot, __u64 now, struct task_struct *prev) {
    slot->nulls = 0;
    slot->off_ns = slot->wait_ns = 0;
    if (slot->stopped_ns)
        slot->off_ns = now - slot->stopped_ns;
    else
        slot->nulls |= NO_OFF;
    if (slot->runnable_ns)
        slot->wait_ns = now - slot->runnable_ns;
    else
        slot->nulls |= NO_WAIT;
    slot->woken_by = slot->waker;
    if (!slot->is_woken)
        slot->nulls |= NOT_WOKEN;
    slot->is_woken = 0;
    slot->runnable_ns = 0;
    slot->prev_tid = thread_of(prev);
    slot->running_ns = now;
}

// Arguments: whether the thread could go on, the thread that stops, the thread that starts, the state of the first.
SEC("raw_tracepoint")
int sched_switch(struct bpf_raw_tracepoint_args *ctx) {
    struct task_struct *prev = (void *)ctx->args[1], *next = (void *)ctx->args[2];
    enum why why = reason(ctx->args[0], ctx->args[3]);
    __u64 now = bpf_ktime_get_ns();
    struct slot *slot;

    if (!is_armed())
        return 0;
    slot = slot_of(prev);
    if (slot) {
        stop(slot, now, why, next);
        if (why == ENDED) {
            __u32 tid = BPF_CORE_READ(prev, pid);
            bpf_map_delete_elem(&slots, &tid);
        } else {
            slot->running_ns = 0;
            slot->stopped_ns = now;
            slot->runnable_ns = why == PREEMPTED ? now : 0;
        }
    }
    slot = slot_of(next);
    if (slot)
        start(slot, now, prev);
    return 0;
}

// Argument: the thread that is to be woken.
SEC("raw_tracepoint")
int sched_waking(struct bpf_raw_tracepoint_args *ctx) {
    struct slot *slot;

    if (!is_armed())
        return 0;
    slot = slot_of((void *)ctx->args[0]);
    if (slot)
        slot->waker = recorded_id();
    return 0;
}

static __always_inline void wake(struct slot *slot) {
    // A thread that runs, or waits for a processor, was woken before it stopped.
    if (slot->running_ns || slot->runnable_ns)
        return;
    slot->runnable_ns = bpf_ktime_get_ns();
    slot->is_woken = 1;
}

// Argument: the thread that was woken.
SEC("raw_tracepoint")
int sched_wakeup(struct bpf_raw_tracepoint_args *ctx) {
    struct slot *slot;

    if (!is_armed())
        return 0;
    slot = slot_of((void *)ctx->args[0]);
    if (slot)
        wake(slot);
    return 0;
}

// Argument: a new thread, which its creator wakes.
SEC("raw_tracepoint")
int sched_wakeup_new(struct bpf_raw_tracepoint_args *ctx) {
    struct slot *slot;

    if (!is_armed())
        return 0;
    slot = slot_of((void *)ctx->args[0]);
    if (slot) {
        slot->waker = recorded_id();
        wake(slot);
    }
    return 0;
}

// Arguments: the task, the former id of its thread.
SEC("raw_tracepoint")
int process_exec(struct bpf_raw_tracepoint_args *ctx) {
    __u32 tid = bpf_get_current_pid_tgid(), old_tid = ctx->args[1];

    if (rename_process()) {
        bpf_map_delete_elem(&slots, &old_tid);
        bpf_map_delete_elem(&slots, &tid);
    } else if (old_tid != tid) {
        // A thread that executes a program takes over the id of the first thread.
        struct slot *slot = bpf_map_lookup_elem(&slots, &old_tid);
        if (slot) {
            struct slot moved = *slot;
            bpf_map_update_elem(&slots, &tid, &moved, BPF_ANY);
            bpf_map_delete_elem(&slots, &old_tid);
        }
    }
    return 0;
}

// The slots of threads that end stay until they stop for the last time.
SEC("raw_tracepoint")
int process_exit(struct bpf_raw_tracepoint_args *ctx) {
    forget_process(ctx);
    return 0;
}
