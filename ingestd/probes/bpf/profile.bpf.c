// The stacks of threads: of those that run at a tick of the clock, and of those that were off the processors.
//
// A record is as long as its stacks. The stacks of a thread that stops are kept in its slot until it runs again, because only then its time off the
// processors is known. The key of a slot is the thread's id in the initial namespace; records have ids in the recorder's namespace.
#include "follow.h"

// src/profile.rs has the same numbers.
#define FRAMES_MAX 127
#define STACK_BYTES (FRAMES_MAX * sizeof(__u64))

struct record {
    __u64 at_ns; // the tick, or the time when the thread stopped or ran again
    __u64 off_ns;
    __u64 cgroup;
    __u64 program; // differs between the programs that a process executes, one after the other
    __u32 pid;
    __u32 tid;
    __s32 user_bytes; // negative: the error of reading the stack
    __s32 kernel_bytes;
    char comm[16];
    __u16 cpu;
    __u16 is_off;
    __u32 padding;
    // Those of the kernel follow those of the program; each begins with the innermost function.
    __u64 addresses[2 * (FRAMES_MAX + 1)];
};
#define HEAD_BYTES __builtin_offsetof(struct record, addresses)

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct record);
} samples SEC(".maps");

// The loader makes it as small as possible if no times off the processors are recorded.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1 << 14);
    __type(key, __u32);
    __type(value, struct record);
} slots SEC(".maps");

// The ticks of a CPU.
struct ticks {
    __u64 first_ns;
    __u64 last_ns;
    __u64 count;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct ticks);
} ticks SEC(".maps");

static const struct record fresh;

const volatile __u64 off_ns_min;

struct mm_struct {
    unsigned long start_stack;
} __attribute__((preserve_access_index));

struct task_struct___mm {
    struct mm_struct *mm;
} __attribute__((preserve_access_index));

// The state of a thread that stops for the last time.
enum { TASK_DEAD = 0x10 | 0x20 | 0x80 };

// Fills a record of the current thread, except for `off_ns`.
static __always_inline void fill(void *ctx, struct record *record, __u64 id, __u64 now) {
    struct task_struct___mm *task = (void *)bpf_get_current_task();
    __s32 bytes;

    record->at_ns = now;
    record->cgroup = bpf_get_current_cgroup_id();
    record->program = BPF_CORE_READ(task, mm, start_stack);
    record->pid = id >> 32;
    record->tid = id;
    record->cpu = bpf_get_smp_processor_id();
    bpf_get_current_comm(record->comm, sizeof record->comm);
    bytes = bpf_get_stack(ctx, record->addresses, STACK_BYTES, BPF_F_USER_STACK);
    record->user_bytes = bytes;
    if (bytes < 0 || bytes > STACK_BYTES)
        bytes = 0;
    record->kernel_bytes = bpf_get_stack(ctx, (void *)record->addresses + bytes, STACK_BYTES, 0);
}

static __always_inline void write_record(struct record *record) {
    __u64 bytes = HEAD_BYTES;

    if (record->user_bytes > 0)
        bytes += record->user_bytes & 1023;
    if (record->kernel_bytes > 0)
        bytes += record->kernel_bytes & 1023;
    count(bpf_ringbuf_output(&ring, record, bytes, BPF_RB_NO_WAKEUP) ? FAILED : EMITTED);
}

static __always_inline void count_tick(__u64 now) {
    __u32 zero = 0;
    struct ticks *of_cpu = bpf_map_lookup_elem(&ticks, &zero);

    if (!of_cpu)
        return;
    if (!of_cpu->count)
        of_cpu->first_ns = now;
    of_cpu->last_ns = now;
    of_cpu->count += 1;
}

SEC("perf_event")
int clock_tick(void *ctx) {
    __u64 id, now = bpf_ktime_get_ns();
    struct record *record;
    __u32 zero = 0;

    if (!is_armed())
        return 0;
    count_tick(now);
    id = recorded_id();
    // The thread without an id is idle.
    if (!(__u32)bpf_get_current_pid_tgid() || !is_selected(id))
        return 0;
    record = bpf_map_lookup_elem(&samples, &zero);
    if (!record)
        return 0;
    fill(ctx, record, id, now);
    write_record(record);
    return 0;
}

// The current thread stops.
static __always_inline void stop(void *ctx, __u32 tid, __u64 id, __u64 now) {
    struct record *slot = bpf_map_lookup_elem(&slots, &tid);

    if (!slot) {
        bpf_map_update_elem(&slots, &tid, &fresh, BPF_ANY);
        slot = bpf_map_lookup_elem(&slots, &tid);
    }
    if (slot)
        fill(ctx, slot, id, now);
    else
        count(NO_SLOT);
}

// A thread runs again.
static __always_inline void start(struct record *slot, __u64 now) {
    __u64 off_ns = now - slot->at_ns;

    // It was off a processor when the recording began, or its slot is of a thread that was not recorded.
    if (!slot->at_ns)
        return;
    if (!is_short(off_ns, off_ns_min)) {
        slot->is_off = 1;
        slot->off_ns = off_ns;
        slot->cpu = bpf_get_smp_processor_id();
        slot->at_ns = now;
        write_record(slot);
    }
    slot->at_ns = 0;
}

// Arguments: whether the thread could go on, the thread that stops, the thread that starts, the state of the first.
SEC("raw_tracepoint")
int sched_switch(struct bpf_raw_tracepoint_args *ctx) {
    struct task_struct *next = (void *)ctx->args[2];
    __u32 tid = bpf_get_current_pid_tgid(), next_tid = BPF_CORE_READ(next, pid);
    __u64 id = recorded_id(), now = bpf_ktime_get_ns();
    struct record *slot;

    if (!is_armed())
        return 0;
    if (ctx->args[3] & TASK_DEAD)
        bpf_map_delete_elem(&slots, &tid);
    else if (tid && is_selected(id))
        stop(ctx, tid, id, now);
    slot = bpf_map_lookup_elem(&slots, &next_tid);
    if (slot)
        start(slot, now);
    return 0;
}

// Arguments: the task, the former id of its thread.
SEC("raw_tracepoint")
int process_exec(struct bpf_raw_tracepoint_args *ctx) {
    __u32 tid = bpf_get_current_pid_tgid(), old_tid = ctx->args[1];

    rename_process();
    // A thread that executes a program takes over the id of the first thread.
    if (tid != old_tid)
        bpf_map_delete_elem(&slots, &old_tid);
    return 0;
}

SEC("raw_tracepoint")
int process_exit(struct bpf_raw_tracepoint_args *ctx) {
    forget_process(ctx);
    return 0;
}
