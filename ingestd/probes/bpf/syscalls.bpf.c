// System calls: the exit of a call writes one record, which has its entry too.
//
// Each thread has a slot for its current call, until the thread ends. The key of a slot is the thread's id in the initial namespace; processes
// have their ids in the recorder's namespace.
#include "loom.h"

// The fields of the source `syscall`, and 4 bytes of padding.
struct record {
    __u64 returned_ns;
    __u64 latency_ns;
    __s64 result;
    __u64 arg0;
    __u16 number;
    __u16 cpu;
    __u32 pid;
    __u32 tid;
    char comm[16];
};

struct slot {
    __u64 entered_ns; // 0: the thread is in no call that is recorded
    __u64 arg0;
    __u64 number;
};

// The reasons why a process is recorded.
enum { BY_PID = 1, BY_NAME = 2, FOLLOWED = 3 };

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1 << 16);
    __type(key, __u32);
    __type(value, struct slot);
} slots SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1 << 16);
    __type(key, __u32);
    __type(value, __u32);
} processes SEC(".maps");

struct name {
    char bytes[16];
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 64);
    __type(key, struct name);
    __type(value, __u32);
} names SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, __u64);
    __type(value, __u32);
} numbers SEC(".maps");

// The verifier removes the code of filters that are off.
const volatile __u32 by_process;
const volatile __u32 by_name;
const volatile __u32 by_number;
const volatile __u32 follow;
const volatile __u64 latency_ns_min;
// The offsets of the first argument and the number of a call among the registers.
const volatile __u32 arg0_offset;
const volatile __u32 number_offset;

struct ns_common {
    unsigned int inum;
} __attribute__((preserve_access_index));

struct pid_namespace {
    struct ns_common ns;
} __attribute__((preserve_access_index));

struct upid {
    int nr;
    struct pid_namespace *ns;
} __attribute__((preserve_access_index));

// A thread's ids, one for each namespace from the initial one to its own.
struct pid {
    unsigned int level;
    struct upid numbers[1];
} __attribute__((preserve_access_index));

struct task_struct {
    int tgid;
    struct pid *thread_pid;
    struct signal_struct *signal;
} __attribute__((preserve_access_index));

typedef struct {
    int counter;
} atomic_t;

struct signal_struct {
    atomic_t live;
} __attribute__((preserve_access_index));

// A number that does not fit a record.
#define NUMBER_UNKNOWN 0xffff

static __always_inline int is_selected(__u64 id) {
    __u32 pid = id >> 32, why = BY_NAME;
    struct name name;

    if (!is_of_namespace(id) || pid == own_pid)
        return 0;
    if (!by_process && !by_name)
        return 1;
    if (bpf_map_lookup_elem(&processes, &pid))
        return 1;
    if (!by_name)
        return 0;
    bpf_get_current_comm(&name, sizeof name);
    if (!bpf_map_lookup_elem(&names, &name))
        return 0;
    // All threads of the process are recorded then, whatever their names.
    if (bpf_map_update_elem(&processes, &pid, &why, BPF_ANY))
        count(NO_SLOT);
    return 1;
}

SEC("raw_tracepoint")
int sys_enter(struct bpf_raw_tracepoint_args *ctx) {
    __u64 number = ctx->args[1];
    __u32 tid = bpf_get_current_pid_tgid();
    struct slot *slot;

    if (!is_armed())
        return 0;
    if (by_number && !bpf_map_lookup_elem(&numbers, &number))
        return 0;
    if (!is_selected(recorded_id()))
        return 0;
    slot = bpf_map_lookup_elem(&slots, &tid);
    if (!slot) {
        struct slot fresh = {};
        bpf_map_update_elem(&slots, &tid, &fresh, BPF_ANY);
        slot = bpf_map_lookup_elem(&slots, &tid);
        if (!slot) {
            count(NO_SLOT);
            return 0;
        }
    }
    slot->number = number;
    slot->arg0 = 0;
    bpf_probe_read_kernel(&slot->arg0, sizeof slot->arg0, (void *)ctx->args[0] + arg0_offset);
    slot->entered_ns = bpf_ktime_get_ns();
    return 0;
}

static __always_inline void count_unpaired(void *registers) {
    __u64 number = 0;

    if (!is_selected(recorded_id()))
        return;
    if (by_number) {
        bpf_probe_read_kernel(&number, sizeof number, registers + number_offset);
        if (!bpf_map_lookup_elem(&numbers, &number))
            return;
    }
    count(UNPAIRED);
}

SEC("raw_tracepoint")
int sys_exit(struct bpf_raw_tracepoint_args *ctx) {
    __u64 id, now, latency_ns;
    __u32 tid = bpf_get_current_pid_tgid();
    struct slot *slot;
    struct record *record;

    if (!is_armed())
        return 0;
    slot = bpf_map_lookup_elem(&slots, &tid);
    if (!slot || !slot->entered_ns) {
        count_unpaired((void *)ctx->args[0]);
        return 0;
    }
    now = bpf_ktime_get_ns();
    latency_ns = now - slot->entered_ns;
    slot->entered_ns = 0;
    if (latency_ns < latency_ns_min) {
        count(FILTERED);
        return 0;
    }
    record = RESERVE(record);
    if (!record)
        return 0;
    id = recorded_id();
    record->returned_ns = now;
    record->latency_ns = latency_ns;
    record->result = ctx->args[1];
    record->arg0 = slot->arg0;
    record->number = slot->number < NUMBER_UNKNOWN ? slot->number : NUMBER_UNKNOWN;
    record->cpu = bpf_get_smp_processor_id();
    record->pid = id >> 32;
    record->tid = id;
    bpf_get_current_comm(record->comm, sizeof record->comm);
    SUBMIT(record);
    return 0;
}

// The id of a new process in the recorder's namespace; 0: the process is in another namespace.
static __always_inline __u32 id_of_new(struct task_struct *task) {
    struct pid *ids;
    struct upid *last;
    __u32 level;

    if (!namespace_inode)
        return BPF_CORE_READ(task, tgid);
    ids = BPF_CORE_READ(task, thread_pid);
    level = BPF_CORE_READ(ids, level);
    last = (void *)ids + bpf_core_field_offset(struct pid, numbers) + level * bpf_core_type_size(struct upid);
    if (BPF_CORE_READ(last, ns, ns.inum) != namespace_inode)
        return 0;
    return BPF_CORE_READ(last, nr);
}

// Arguments: the parent, the child.
SEC("raw_tracepoint")
int process_fork(struct bpf_raw_tracepoint_args *ctx) {
    struct task_struct *child = (void *)ctx->args[1];
    __u32 pid, why = FOLLOWED, parent = bpf_get_current_pid_tgid() >> 32;

    // A new thread belongs to a known process.
    if (!follow || BPF_CORE_READ(child, tgid) == parent || !is_selected(recorded_id()))
        return 0;
    pid = id_of_new(child);
    if (pid && bpf_map_update_elem(&processes, &pid, &why, BPF_ANY))
        count(NO_SLOT);
    return 0;
}

// Arguments: the task, the former id of its thread. A process that was recorded by its name has another name now.
SEC("raw_tracepoint")
int process_exec(struct bpf_raw_tracepoint_args *ctx) {
    __u32 pid = recorded_id() >> 32, tid = bpf_get_current_pid_tgid(), old_tid = ctx->args[1];
    __u32 *why = bpf_map_lookup_elem(&processes, &pid);

    if (!follow && why && *why == BY_NAME)
        bpf_map_delete_elem(&processes, &pid);
    if (old_tid != tid) {
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

SEC("raw_tracepoint")
int process_exit(struct bpf_raw_tracepoint_args *ctx) {
    struct task_struct *task = (void *)ctx->args[0];
    __u32 pid = recorded_id() >> 32, tid = bpf_get_current_pid_tgid();

    bpf_map_delete_elem(&slots, &tid);
    if (!BPF_CORE_READ(task, signal, live.counter))
        bpf_map_delete_elem(&processes, &pid);
    return 0;
}
