// The parts that the programs share: the switch, the ring, and the counters of each CPU.
//
// The loader (src/probe.rs) finds the maps by name, and the counters by number.
#pragma once
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

// src/counts.rs has the same numbers.
enum counter {
    EMITTED,   // records that the ring took
    FAILED,    // records that found the ring full
    UNPAIRED,  // ends whose beginning was not seen
    NO_SLOT,   // beginnings that the slots had no room for
    FILTERED,  // pairs that ended sooner than asked for
    LEFT,      // beginnings whose end cannot come any more
    TOO_DEEP,  // beginnings whose end the kernel does not report
    SAMPLED,   // pairs that are left out to save time
    COUNTERS,
};

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 64 << 20);
} ring SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, COUNTERS);
    __type(key, __u32);
    __type(value, __u64);
} counters SEC(".maps");

// One word: 1 while events are recorded.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} armed SEC(".maps");

// One word: the least time that is worth a record, apart from the filters, in nanoseconds. The loader raises it to save time.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} least SEC(".maps");

// The recorder's own process, by the id of its namespace. Its events are not recorded.
const volatile __u32 own_pid;

// The PID namespace of the recorder. Only events of its processes are recorded, with their ids in it. 0: the initial namespace, which has
// all processes.
const volatile __u64 namespace_device;
const volatile __u64 namespace_inode;

static __always_inline int is_armed(void) {
    __u32 zero = 0;
    __u32 *word = bpf_map_lookup_elem(&armed, &zero);
    return word && *word;
}

// Process << 32 | thread, by the ids of the recorder's namespace; 0: this thread is in another namespace.
static __always_inline __u64 recorded_id(void) {
    struct bpf_pidns_info ids = {};

    if (!namespace_inode)
        return bpf_get_current_pid_tgid();
    if (bpf_get_ns_current_pid_tgid(namespace_device, namespace_inode, &ids, sizeof ids))
        return 0;
    return (__u64)ids.tgid << 32 | ids.pid;
}

static __always_inline int is_of_namespace(__u64 id) {
    return !namespace_inode || id;
}

// The addition is one instruction, because an interrupt on the same CPU may count too.
static __always_inline void count(__u32 counter) {
    __u64 *total = bpf_map_lookup_elem(&counters, &counter);
    if (total)
        __sync_fetch_and_add(total, 1);
}

// Whether a time is too short for a record, by the filter or to save time.
static __always_inline int is_short(__u64 ns, __u64 filter_ns) {
    __u32 zero = 0;
    __u64 *least_ns = bpf_map_lookup_elem(&least, &zero);

    if (ns < filter_ns) {
        count(FILTERED);
        return 1;
    }
    if (least_ns && ns < *least_ns) {
        count(SAMPLED);
        return 1;
    }
    return 0;
}

// Reserves space for a record. The drainer polls, so a record wakes nobody.
#define RESERVE_BYTES(bytes) \
    ({ \
        void *room = bpf_ringbuf_reserve(&ring, bytes, 0); \
        count(room ? EMITTED : FAILED); \
        room; \
    })
#define RESERVE(record) RESERVE_BYTES(sizeof(*(record)))
#define SUBMIT(record) bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP)

char _license[] SEC("license") = "Dual MIT/GPL";
