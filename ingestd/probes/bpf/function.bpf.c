// Calls of functions of programs: the return of a call writes one record, which has its arguments too. A hit of a static probe (USDT) writes one at once.
//
// Each thread has a stack of the calls that have not returned, as the kernel has for the returns that it redirects. A call is dropped from it when the
// stack pointer shows that it was left without a return (by longjmp), by the kernel's own rule. The keys are ids of threads in the initial namespace;
// records have ids in the recorder's namespace.
#include "follow.h"

// The kernel redirects so many returns of a thread at a time, and omits those of deeper calls.
#define DEPTH_MAX 64
#define ARGS_MAX 7
#define TEXT_BYTES 64
#define PLACES_MAX 64
#define NO_REGISTER ((__u32)-1)

// The fields of the source behind its time, the byte of null bits and the latency of a call, before the arguments. The byte is there if a value is
// recorded, and then these stand at odd addresses, which the machines of this object allow.
struct fields {
    __u64 cgroup;
    __u32 function;
    __u32 pid;
    __u32 tid;
    char comm[16];
    __u16 cpu;
};
#define FIELDS_BYTES (__builtin_offsetof(struct fields, cpu) + 2)

struct frame {
    __u64 entered_ns;
    __u64 stack; // the stack pointer at the entry
    __u32 function;
    __u32 nulls;
    char args[ARGS_MAX * TEXT_BYTES];
};

struct key {
    __u32 tid;
    __u32 depth;
};

// The number of calls of each thread that have not returned.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1 << 16);
    __type(key, __u32);
    __type(value, __u32);
} threads SEC(".maps");

// A frame stays until its thread ends, for the next call at its depth.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1 << 15);
    __type(key, struct key);
    __type(value, struct frame);
} frames SEC(".maps");

static const struct frame fresh;

// An argument or a result, and its place in a payload.
struct value {
    __u32 from;     // offset among the registers, or on the stack
    __u32 on_stack;
    __u32 is_text;  // the word is the address of a text
    __u32 bytes;    // 0: it is not recorded
    __u32 at;       // behind the fields
};

// An argument of a static probe at one of its places: a number, or what stands at its address. src/operand.rs makes them.
struct operand {
    __s64 constant;
    __u32 base;      // offsets among the registers, or NO_REGISTER
    __u32 index;
    __u32 scale;
    __u32 in_memory; // the sum is an address
    __u32 bytes;     // 0: the probe has no such argument here
    __u32 is_signed;
};

const volatile struct value args[ARGS_MAX];
const volatile struct operand operands[PLACES_MAX * ARGS_MAX];
const volatile struct value result;
const volatile __u32 args_count;
const volatile __u32 args_bytes;
const volatile __u32 record_bytes;
const volatile __u64 latency_ns_min;
// The offsets of the stack pointer and of the register with the return address; 0: the stack has that.
const volatile __u32 stack_offset;
const volatile __u32 link_offset;
// The bytes that a return takes from the stack.
const volatile __u32 return_bytes;

struct xol_area {
    unsigned long vaddr;
} __attribute__((preserve_access_index));

struct uprobes_state {
    struct xol_area *xol_area;
} __attribute__((preserve_access_index));

struct mm_struct {
    struct uprobes_state uprobes_state;
} __attribute__((preserve_access_index));

struct task_struct___mm {
    struct mm_struct *mm;
} __attribute__((preserve_access_index));

static __always_inline __u64 word(void *registers, __u32 offset) {
    __u64 word = 0;
    bpf_probe_read_kernel(&word, sizeof word, registers + offset);
    return word;
}

// Reads a value to `to`, which has space for it. Returns whether it is null.
static __always_inline int read_value(void *to, const volatile struct value *value, void *registers, __u64 stack) {
    __u64 found = 0;

    if (!value->on_stack)
        found = word(registers, value->from);
    else if (bpf_probe_read_user(&found, sizeof found, (void *)stack + value->from))
        return 1;
    // The machines of this object store the low bytes first.
    if (!value->is_text)
        return bpf_probe_read_kernel(to, value->bytes, &found) != 0;
    return bpf_probe_read_user_str(to, TEXT_BYTES, (void *)found) < 0;
}

// A function that another one calls last takes over its stack pointer and its return address, which the kernel has redirected.
static __always_inline int is_tail_call(void *registers, __u64 stack) {
    struct task_struct___mm *task = (void *)bpf_get_current_task();
    __u64 address = 0;

    if (link_offset)
        address = word(registers, link_offset);
    else
        bpf_probe_read_user(&address, sizeof address, (void *)stack);
    return address == BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr);
}

static __always_inline struct frame *frame_at(__u32 tid, __u32 depth) {
    struct key key = {tid, depth};
    return bpf_map_lookup_elem(&frames, &key);
}

// Drops the calls that were left without a return. The current one has this stack pointer.
static __always_inline void unwind(void *registers, __u32 tid, __u32 *depth, __u64 stack, __u32 function, int is_entry) {
    for (int i = 0; i < DEPTH_MAX && *depth; i++) {
        struct frame *frame = frame_at(tid, *depth - 1);

        if (frame && frame->stack > stack)
            break;
        if (frame && frame->stack == stack && (is_entry ? is_tail_call(registers, stack) : frame->function == function))
            break;
        *depth -= 1;
        count(LEFT);
    }
}

static __always_inline __u32 *depth_of(__u32 tid) {
    __u32 *depth = bpf_map_lookup_elem(&threads, &tid), none = 0;

    if (depth)
        return depth;
    bpf_map_update_elem(&threads, &tid, &none, BPF_ANY);
    return bpf_map_lookup_elem(&threads, &tid);
}

static __always_inline struct frame *new_frame(__u32 tid, __u32 depth) {
    struct frame *frame = frame_at(tid, depth);
    struct key key = {tid, depth};

    if (frame)
        return frame;
    bpf_map_update_elem(&frames, &key, &fresh, BPF_ANY);
    return bpf_map_lookup_elem(&frames, &key);
}

SEC("uprobe")
int function_enter(void *registers) {
    __u64 stack = word(registers, stack_offset);
    __u32 *depth, tid = bpf_get_current_pid_tgid();
    __u32 function = bpf_get_attach_cookie(registers);
    struct frame *frame;

    if (!is_armed() || !is_selected(recorded_id()))
        return 0;
    depth = depth_of(tid);
    if (!depth) {
        count(NO_SLOT);
        return 0;
    }
    unwind(registers, tid, depth, stack, function, 1);
    if (*depth >= DEPTH_MAX) {
        count(TOO_DEEP);
        return 0;
    }
    frame = new_frame(tid, *depth);
    if (!frame) {
        count(NO_SLOT);
        return 0;
    }
    *depth += 1;
    frame->stack = stack;
    frame->function = function;
    frame->nulls = 0;
#pragma clang loop unroll(full)
    for (int i = 0; i < ARGS_MAX; i++) {
        __u32 at = args[i].at;

        if (i < args_count && at <= (ARGS_MAX - 1) * TEXT_BYTES)
            frame->nulls |= read_value(frame->args + at, &args[i], registers, stack) << i;
    }
    frame->entered_ns = bpf_ktime_get_ns();
    return 0;
}

static __always_inline void write_fields(struct fields *fields, __u32 function) {
    __u64 id = recorded_id();

    fields->cgroup = bpf_get_current_cgroup_id();
    fields->function = function;
    fields->pid = id >> 32;
    fields->tid = id;
    bpf_get_current_comm(fields->comm, sizeof fields->comm);
    fields->cpu = bpf_get_smp_processor_id();
}

// Writes the record of a call that returned.
static __always_inline void write_record(void *registers, struct frame *frame, __u64 now) {
    __u32 has_nulls = args_count || result.bytes, nulls = frame->nulls;
    struct fields *fields;
    char *record;

    record = RESERVE_BYTES(record_bytes);
    if (!record)
        return;
    *(__u64 *)record = now;
    *(__u64 *)(record + 8 + has_nulls) = now - frame->entered_ns;
    fields = (void *)record + 16 + has_nulls;
    write_fields(fields, frame->function);
    if (args_bytes)
        bpf_probe_read_kernel((void *)fields + FIELDS_BYTES, args_bytes, frame->args);
    if (result.bytes)
        nulls |= read_value((void *)fields + FIELDS_BYTES + args_bytes, &result, registers, 0) << args_count;
    if (has_nulls)
        record[8] = nulls;
    SUBMIT(record);
}

SEC("uretprobe")
int function_return(void *registers) {
    __u64 now, stack = word(registers, stack_offset) - return_bytes;
    __u32 *depth, tid = bpf_get_current_pid_tgid();
    __u32 function = bpf_get_attach_cookie(registers);
    struct frame *frame = 0;

    if (!is_armed())
        return 0;
    now = bpf_ktime_get_ns();
    depth = bpf_map_lookup_elem(&threads, &tid);
    if (depth) {
        unwind(registers, tid, depth, stack, function, 0);
        if (*depth)
            frame = frame_at(tid, *depth - 1);
    }
    if (!frame || frame->stack != stack) {
        if (is_selected(recorded_id()))
            count(UNPAIRED);
        return 0;
    }
    *depth -= 1;
    if (!is_short(now - frame->entered_ns, latency_ns_min))
        write_record(registers, frame, now);
    return 0;
}

// Reads the argument of a static probe to `to`, as `read_value` does.
static __always_inline int read_argument(void *to, const volatile struct value *value, const volatile struct operand *operand, void *registers) {
    __u64 found = operand->constant;
    __u32 base = operand->base, index = operand->index, bytes = operand->bytes, shift;

    if (!bytes || bytes > sizeof found)
        return 1;
    if (base != NO_REGISTER)
        found += word(registers, base);
    if (index != NO_REGISTER)
        found += word(registers, index) * operand->scale;
    if (operand->in_memory) {
        void *address = (void *)found;

        found = 0;
        if (bpf_probe_read_user(&found, bytes, address))
            return 1;
    }
    shift = 64 - 8 * bytes;
    found <<= shift;
    found = operand->is_signed ? (__u64)((__s64)found >> shift) : found >> shift;
    if (!value->is_text)
        return bpf_probe_read_kernel(to, value->bytes, &found) != 0;
    return bpf_probe_read_user_str(to, TEXT_BYTES, (void *)found) < 0;
}

// The cookie has the place of the static probe above its number.
SEC("uprobe")
int probe_hit(void *registers) {
    __u64 cookie = bpf_get_attach_cookie(registers), now;
    __u32 place = cookie >> 32, has_nulls = args_count != 0, nulls = 0;
    struct fields *fields;
    char *record;

    if (!is_armed() || !is_selected(recorded_id()) || place >= PLACES_MAX)
        return 0;
    now = bpf_ktime_get_ns();
    record = RESERVE_BYTES(record_bytes);
    if (!record)
        return 0;
    *(__u64 *)record = now;
    fields = (void *)record + 8 + has_nulls;
    write_fields(fields, cookie);
#pragma clang loop unroll(full)
    for (int i = 0; i < ARGS_MAX; i++) {
        void *to = (void *)fields + FIELDS_BYTES + args[i].at;

        if (i < args_count)
            nulls |= read_argument(to, &args[i], &operands[place * ARGS_MAX + i], registers) << i;
    }
    if (has_nulls)
        record[8] = nulls;
    SUBMIT(record);
    return 0;
}

// The thread ends or executes another program.
static __always_inline void forget_thread(__u32 tid) {
    __u32 *depth = bpf_map_lookup_elem(&threads, &tid);

    if (!depth)
        return;
    for (__u32 i = 0; i < DEPTH_MAX; i++) {
        struct key key = {tid, i};

        if (i < *depth && is_armed())
            count(LEFT);
        if (bpf_map_delete_elem(&frames, &key))
            break;
    }
    bpf_map_delete_elem(&threads, &tid);
}

// Arguments: the task, the former id of its thread.
SEC("raw_tracepoint")
int process_exec(struct bpf_raw_tracepoint_args *ctx) {
    rename_process();
    forget_thread(ctx->args[1]);
    return 0;
}

SEC("raw_tracepoint")
int process_exit(struct bpf_raw_tracepoint_args *ctx) {
    forget_thread(bpf_get_current_pid_tgid());
    forget_process(ctx);
    return 0;
}
