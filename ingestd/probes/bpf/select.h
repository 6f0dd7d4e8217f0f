// Selects the threads to record: by process, by name, by cgroup, and their children.
//
// A process has its id in the recorder's namespace. The loader (src/selection.rs) fills the maps, and knows their names.
#pragma once
#include "cgroup.h"

// The reasons why a process is recorded.
enum { BY_PID = 1, BY_NAME = 2, FOLLOWED = 3 };

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

// The verifier removes the code of filters that are off.
const volatile __u32 by_process;
const volatile __u32 by_name;
const volatile __u32 follow;

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

typedef struct {
    int counter;
} atomic_t;

struct signal_struct {
    atomic_t live;
} __attribute__((preserve_access_index));

struct task_struct {
    int pid;
    int tgid;
    struct task_struct *group_leader;
    struct pid *thread_pid;
    struct signal_struct *signal;
    char comm[16];
} __attribute__((preserve_access_index));

// The id of a thread in the recorder's namespace; 0: the thread is in another namespace, or has no id any more.
static __always_inline __u32 id_in_namespace(struct task_struct *task) {
    struct pid *ids = BPF_CORE_READ(task, thread_pid);
    struct upid *last;
    __u32 level;

    if (!ids)
        return 0;
    level = BPF_CORE_READ(ids, level);
    last = (void *)ids + bpf_core_field_offset(struct pid, numbers) + level * bpf_core_type_size(struct upid);
    if (BPF_CORE_READ(last, ns, ns.inum) != namespace_inode)
        return 0;
    return BPF_CORE_READ(last, nr);
}

// The process and the thread of a task by their ids in the recorder's namespace.
static __always_inline __u32 process_of(struct task_struct *task) {
    return namespace_inode ? id_in_namespace(BPF_CORE_READ(task, group_leader)) : BPF_CORE_READ(task, tgid);
}

static __always_inline __u32 thread_of(struct task_struct *task) {
    return namespace_inode ? id_in_namespace(task) : BPF_CORE_READ(task, pid);
}

// Whether a process is recorded for its id or for the name of one of its threads.
static __always_inline int is_selected_process(__u32 pid, struct name *name) {
    __u32 why = BY_NAME;

    if (pid == own_pid)
        return 0;
    if (!by_process && !by_name)
        return 1;
    if (bpf_map_lookup_elem(&processes, &pid))
        return 1;
    if (!by_name || !bpf_map_lookup_elem(&names, name))
        return 0;
    // All threads of the process are recorded then, whatever their names.
    if (bpf_map_update_elem(&processes, &pid, &why, BPF_ANY))
        count(NO_SLOT);
    return 1;
}

// Whether the current thread is recorded; its ids are `id`.
static __always_inline int is_selected(__u64 id) {
    struct name name;

    if (!is_of_namespace(id) || !is_in_cgroup())
        return 0;
    if (by_name)
        bpf_get_current_comm(&name, sizeof name);
    return is_selected_process(id >> 32, &name);
}

// A new process of a recorded one is recorded, if asked for. Arguments of the tracepoint: the parent, the child.
static __always_inline void follow_fork(struct bpf_raw_tracepoint_args *ctx) {
    struct task_struct *child = (void *)ctx->args[1];
    __u32 pid, why = FOLLOWED, parent = bpf_get_current_pid_tgid() >> 32;

    // A new thread belongs to a known process.
    if (!follow || BPF_CORE_READ(child, tgid) == parent || !is_selected(recorded_id()))
        return;
    pid = process_of(child);
    if (pid && bpf_map_update_elem(&processes, &pid, &why, BPF_ANY))
        count(NO_SLOT);
}

// A process executes a program, and so has another name. Returns whether it is no longer recorded.
static __always_inline int rename_process(void) {
    __u64 id = recorded_id();
    __u32 pid = id >> 32;
    __u32 *why = bpf_map_lookup_elem(&processes, &pid);
    int was_named = why && *why == BY_NAME && !follow;

    if (was_named)
        bpf_map_delete_elem(&processes, &pid);
    // The names of its later threads differ, and one of those may have an event before the thread with this name.
    return !is_selected(id) && was_named;
}

// A process ends with its last thread. Argument of the tracepoint: the task.
static __always_inline void forget_process(struct bpf_raw_tracepoint_args *ctx) {
    struct task_struct *task = (void *)ctx->args[0];
    __u32 pid = recorded_id() >> 32;

    if (!BPF_CORE_READ(task, signal, live.counter))
        bpf_map_delete_elem(&processes, &pid);
}
