// The control groups of version 2: the one of a thread, and the only one whose threads are recorded.
#pragma once
#include "loom.h"

// A cgroup, with those below it, and its depth below the root; 0: all. The loader (src/selection.rs) sets both.
const volatile __u64 only_cgroup;
const volatile __u32 only_cgroup_level;

// A group's id behind fields of other lengths.
typedef __u64 cgroup_id __attribute__((aligned(1)));

// Whether the current thread is in the cgroup.
static __always_inline int is_in_cgroup(void) {
    return !only_cgroup || bpf_get_current_ancestor_cgroup_id(only_cgroup_level) == only_cgroup;
}
