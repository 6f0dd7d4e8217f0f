// System calls: the exit of a call writes one record, which has its entry too.
//
// Each thread has a slot for its current call, until the thread ends. The key of a slot is the thread's id in the initial namespace; processes
// have their ids in the recorder's namespace.
#include "follow.h"

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
    cgroup_id cgroup;
};

struct slot {
    __u64 entered_ns; // 0: the thread is in no call that is recorded
    __u64 arg0;
    __u64 number;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1 << 16);
    __type(key, __u32);
    __type(value, struct slot);
} slots SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, __u64);
    __type(value, __u32);
} numbers SEC(".maps");

const volatile __u32 by_number;
const volatile __u64 latency_ns_min;
// The offsets of the first argument and the number of a call among the registers.
const volatile __u32 arg0_offset;
const volatile __u32 number_offset;

// A number that does not fit a record.
#define NUMBER_UNKNOWN 0xffff

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
    if (is_short(latency_ns, latency_ns_min))
        return 0;
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
    record->cgroup = bpf_get_current_cgroup_id();
    SUBMIT(record);
    return 0;
}

// Arguments: the task, the former id of its thread.
SEC("raw_tracepoint")
int process_exec(struct bpf_raw_tracepoint_args *ctx) {
    __u32 tid = bpf_get_current_pid_tgid(), old_tid = ctx->args[1];

    rename_process();
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
    __u32 tid = bpf_get_current_pid_tgid();

    bpf_map_delete_elem(&slots, &tid);
    forget_process(ctx);
    return 0;
}
