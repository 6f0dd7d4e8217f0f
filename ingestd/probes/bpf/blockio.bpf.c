// Requests to block devices: the completion of a request writes one record, which has its issue too.
//
// A request is found by its address, which is unique from issue to completion. A second issue replaces the first; the completion of a part
// is not the completion of the request.
#include "cgroup.h"

// The fields of the source `blockio`, and 4 bytes of padding.
struct record {
    __u64 completed_ns;
    __u8 nulls;
    __u8 op;
    __u16 cpu;
    __u32 device; // major << 20 | minor
    __u64 latency_ns;
    __u64 queue_ns;
    __u64 sector;
    __u32 bytes;
    __u32 pid;
    __u32 tid;
    char comm[16];
    cgroup_id cgroup;
};

// The bit of `nulls`.
enum { NO_QUEUE = 1 };

struct slot {
    __u64 issued_ns;
    __u64 queue_ns; // 0: unknown
    __u64 sector;
    __u64 id;
    __u64 cgroup;
    __u32 bytes;
    __u32 device;
    __u16 op;
    __u16 cpu;
    char comm[16];
    __u32 padding;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1 << 14);
    __type(key, __u64);
    __type(value, struct slot);
} slots SEC(".maps");

// The only device that is recorded, as major << 20 | minor; 0: all.
const volatile __u32 only_device;

struct gendisk {
    int major;
    int first_minor;
} __attribute__((preserve_access_index));

struct request_queue {
    struct gendisk *disk;
} __attribute__((preserve_access_index));

struct request {
    struct request_queue *q;
    unsigned int cmd_flags;
    unsigned int __data_len;
    unsigned long __sector;
    __u64 start_time_ns;
} __attribute__((preserve_access_index));

static __always_inline __u32 device_of(struct request *request) {
    struct gendisk *disk = BPF_CORE_READ(request, q, disk);
    if (!disk)
        return 0;
    return (__u32)BPF_CORE_READ(disk, major) << 20 | (__u32)BPF_CORE_READ(disk, first_minor);
}

// Argument: the request.
SEC("raw_tracepoint")
int rq_issue(struct bpf_raw_tracepoint_args *ctx) {
    struct request *request = (void *)ctx->args[0];
    __u64 begun_ns, key = ctx->args[0];
    struct slot slot = {};

    if (!is_armed() || !is_in_cgroup())
        return 0;
    slot.device = device_of(request);
    if (only_device && slot.device != only_device)
        return 0;
    slot.sector = BPF_CORE_READ(request, __sector);
    slot.bytes = BPF_CORE_READ(request, __data_len);
    slot.op = BPF_CORE_READ(request, cmd_flags) & 0xff;
    slot.cpu = bpf_get_smp_processor_id();
    slot.id = recorded_id();
    slot.cgroup = bpf_get_current_cgroup_id();
    bpf_get_current_comm(slot.comm, sizeof slot.comm);
    slot.issued_ns = bpf_ktime_get_ns();
    // The kernel notes when a request began if the device keeps statistics.
    begun_ns = BPF_CORE_READ(request, start_time_ns);
    if (begun_ns && begun_ns < slot.issued_ns)
        slot.queue_ns = slot.issued_ns - begun_ns;
    if (bpf_map_update_elem(&slots, &key, &slot, BPF_ANY))
        count(NO_SLOT);
    return 0;
}

// Arguments: the request, the error, how many bytes completed.
SEC("raw_tracepoint")
int rq_complete(struct bpf_raw_tracepoint_args *ctx) {
    struct request *request = (void *)ctx->args[0];
    __u64 key = ctx->args[0], now = bpf_ktime_get_ns();
    struct slot *slot;
    struct record *record;

    if (!is_armed())
        return 0;
    slot = bpf_map_lookup_elem(&slots, &key);
    if (!slot) {
        // Requests of other groups have no slot.
        if (!only_cgroup && (!only_device || device_of(request) == only_device))
            count(UNPAIRED);
        return 0;
    }
    if ((__u32)ctx->args[2] < BPF_CORE_READ(request, __data_len))
        return 0;
    record = RESERVE(record);
    if (record) {
        record->completed_ns = now;
        record->latency_ns = now - slot->issued_ns;
        record->sector = slot->sector;
        record->bytes = slot->bytes;
        record->device = slot->device;
        record->op = slot->op;
        record->nulls = slot->queue_ns ? 0 : NO_QUEUE;
        record->queue_ns = slot->queue_ns;
        record->cpu = slot->cpu;
        record->pid = slot->id >> 32;
        record->tid = slot->id;
        __builtin_memcpy(record->comm, slot->comm, sizeof record->comm);
        record->cgroup = slot->cgroup;
        SUBMIT(record);
    }
    bpf_map_delete_elem(&slots, &key);
    return 0;
}
