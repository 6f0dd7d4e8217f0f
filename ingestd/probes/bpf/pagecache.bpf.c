// The page cache: one record for each folio that is added or deleted.
#include "cgroup.h"

// The fields of the source `pagecache`, and 3 bytes of padding.
struct record {
    __u64 at_ns;
    __u64 inode;
    __u64 page;
    __u32 pages;
    __u32 device; // major << 20 | minor
    __u32 pid;
    char comm[16];
    __u8 op;
    cgroup_id cgroup;
};

// The argument of the page cache's tracepoints; the kernel's BTF has the offsets.
struct trace_event_raw_mm_filemap_op_page_cache {
    unsigned long i_ino;
    unsigned long index;
    __u32 s_dev;
    unsigned char order;
} __attribute__((preserve_access_index));

static __always_inline int emit(struct trace_event_raw_mm_filemap_op_page_cache *event, __u8 op) {
    struct record *record;
    __u64 id = recorded_id();
    __u32 order = 0, pid = id >> 32;

    if (!is_armed() || !is_of_namespace(id) || pid == own_pid || !is_in_cgroup())
        return 0;
    record = RESERVE(record);
    if (!record)
        return 0;
    // A kernel that has no orders has events of single pages.
    if (bpf_core_field_exists(event->order))
        order = event->order & 31;
    record->at_ns = bpf_ktime_get_ns();
    record->inode = event->i_ino;
    record->page = event->index;
    record->pages = 1u << order;
    record->device = event->s_dev;
    record->pid = pid;
    bpf_get_current_comm(record->comm, sizeof record->comm);
    record->op = op;
    record->cgroup = bpf_get_current_cgroup_id();
    SUBMIT(record);
    return 0;
}

SEC("tracepoint")
int page_add(struct trace_event_raw_mm_filemap_op_page_cache *event) {
    return emit(event, 1);
}

SEC("tracepoint")
int page_delete(struct trace_event_raw_mm_filemap_op_page_cache *event) {
    return emit(event, 0);
}
