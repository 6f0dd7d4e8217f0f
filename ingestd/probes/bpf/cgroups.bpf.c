// Control groups of version 2 that begin: one record for each.
#include "loom.h"

#define PATH_BYTES 1024

// src/cgroups.rs makes the fields of the source `cgroup` of it.
struct record {
    __u64 at_ns;
    __u64 id;
    __u32 path_bytes;
    char path[PATH_BYTES];
};

struct kernfs_node {
    __u64 id;
} __attribute__((preserve_access_index));

struct cgroup_root {
    int hierarchy_id;
} __attribute__((preserve_access_index));

struct cgroup {
    struct kernfs_node *kn;
    struct cgroup_root *root;
} __attribute__((preserve_access_index));

// Arguments: the group, its path below the root of its hierarchy.
SEC("raw_tracepoint")
int cgroup_mkdir(struct bpf_raw_tracepoint_args *ctx) {
    struct cgroup *group = (void *)ctx->args[0];
    struct record *record;
    long bytes;

    // The hierarchy of version 2 has this number, and those of version 1 the others.
    if (!is_armed() || BPF_CORE_READ(group, root, hierarchy_id))
        return 0;
    record = RESERVE(record);
    if (!record)
        return 0;
    record->at_ns = bpf_ktime_get_ns();
    record->id = BPF_CORE_READ(group, kn, id);
    bytes = bpf_probe_read_kernel_str(record->path, PATH_BYTES, (void *)ctx->args[1]);
    record->path_bytes = bytes > 0 ? bytes - 1 : 0;
    SUBMIT(record);
    return 0;
}
