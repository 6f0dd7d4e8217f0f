// Processes that begin, execute programs and end: one record for each.
//
// A thread that begins or ends is no event, except the last one of a process.
#include "select.h"

#define PATH_BYTES 256
#define ARGS_BYTES 1024

// The values of `event`; src/process.rs has the same.
enum event { FORK, EXEC, EXIT };

// src/process.rs makes the fields of the source `process` of it.
struct record {
    __u64 at_ns;
    __u64 cgroup;
    __u64 lived_ns; // EXIT
    __u32 pid;
    __u32 ppid;
    __u32 status; // EXIT
    __u32 event;
    char comm[16];
};

struct exec_record {
    struct record head;
    __u32 path_bytes;
    __u32 args_bytes;
    char path[PATH_BYTES];
    char args[ARGS_BYTES];
};

// The processes that ended. Their last two threads may both find that no thread is left.
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1 << 14);
    __type(key, __u32);
    __type(value, __u32);
} ended SEC(".maps");

struct linux_binprm {
    const char *filename;
} __attribute__((preserve_access_index));

struct mm_struct {
    unsigned long arg_start;
    unsigned long arg_end;
} __attribute__((preserve_access_index));

struct signal_struct___exit {
    unsigned int flags;
    int group_exit_code;
} __attribute__((preserve_access_index));

struct task_struct___exit {
    struct task_struct *real_parent;
    struct mm_struct *mm;
    struct signal_struct___exit *signal;
    __u64 start_time;
    int exit_code;
} __attribute__((preserve_access_index));

#define SIGNAL_GROUP_EXIT 4

static __always_inline void fill(struct record *record, enum event event, __u32 pid, __u32 ppid) {
    record->at_ns = bpf_ktime_get_ns();
    record->cgroup = bpf_get_current_cgroup_id();
    record->lived_ns = 0;
    record->pid = pid;
    record->ppid = ppid;
    record->status = 0;
    record->event = event;
    bpf_get_current_comm(record->comm, sizeof record->comm);
}

// Arguments: the parent, the child.
SEC("raw_tracepoint")
int process_fork(struct bpf_raw_tracepoint_args *ctx) {
    struct task_struct *child = (void *)ctx->args[1];
    __u32 pid, tgid = BPF_CORE_READ(child, tgid);
    __u64 id = recorded_id();
    struct record *record;

    if (!is_armed() || tgid == bpf_get_current_pid_tgid() >> 32)
        return 0;
    bpf_map_delete_elem(&ended, &tgid);
    if (!is_selected(id))
        return 0;
    follow_fork(ctx);
    pid = process_of(child);
    record = RESERVE(record);
    if (!record)
        return 0;
    fill(record, FORK, pid, id >> 32);
    SUBMIT(record);
    return 0;
}

// Arguments: the task, the former id of its thread, the program.
SEC("raw_tracepoint")
int process_exec(struct bpf_raw_tracepoint_args *ctx) {
    struct task_struct___exit *task = (void *)ctx->args[0];
    struct linux_binprm *program = (void *)ctx->args[2];
    unsigned long start, bytes;
    struct exec_record *record;
    __u64 id = recorded_id();
    long path_bytes;

    if (!is_armed())
        return 0;
    rename_process();
    if (!is_selected(id))
        return 0;
    record = RESERVE(record);
    if (!record)
        return 0;
    fill(&record->head, EXEC, id >> 32, process_of(BPF_CORE_READ(task, real_parent)));
    path_bytes = bpf_probe_read_kernel_str(record->path, PATH_BYTES, BPF_CORE_READ(program, filename));
    record->path_bytes = path_bytes > 0 ? path_bytes - 1 : 0;
    start = BPF_CORE_READ(task, mm, arg_start);
    bytes = BPF_CORE_READ(task, mm, arg_end) - start;
    if (bytes > ARGS_BYTES)
        bytes = ARGS_BYTES;
    record->args_bytes = bpf_probe_read_user(record->args, bytes, (void *)start) ? 0 : bytes;
    SUBMIT(record);
    return 0;
}

// Argument: the task.
SEC("raw_tracepoint")
int process_exit(struct bpf_raw_tracepoint_args *ctx) {
    struct task_struct___exit *task = (void *)ctx->args[0];
    struct task_struct *leader;
    __u32 one = 1, tgid = bpf_get_current_pid_tgid() >> 32;
    __u64 id = recorded_id();
    struct record *record;
    int selected;

    if (!is_armed() || BPF_CORE_READ((struct task_struct *)task, signal, live.counter))
        return 0;
    selected = is_selected(id);
    forget_process(ctx);
    if (!selected || bpf_map_update_elem(&ended, &tgid, &one, BPF_NOEXIST))
        return 0;
    record = RESERVE(record);
    if (!record)
        return 0;
    fill(record, EXIT, id >> 32, process_of(BPF_CORE_READ(task, real_parent)));
    leader = BPF_CORE_READ((struct task_struct *)task, group_leader);
    record->lived_ns = record->at_ns - BPF_CORE_READ((struct task_struct___exit *)leader, start_time);
    record->status = BPF_CORE_READ(task, exit_code);
    if (BPF_CORE_READ(task, signal, flags) & SIGNAL_GROUP_EXIT)
        record->status = BPF_CORE_READ(task, signal, group_exit_code);
    SUBMIT(record);
    return 0;
}
