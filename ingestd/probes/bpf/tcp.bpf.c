// TCP: connections that change their state, segments that are sent again, and resets.
//
// A connection is known by the address of its socket, from its first event until the socket is used again. Its process is known if that process connected or
// listened; the kernel accepts connections in an interrupt. Its control group is the one in which its socket was created, or the listening one.
#include "select.h"

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6

// The values of `event`; src/tcp.rs has the same.
enum event { STATE, RETRANSMIT, RESET_SENT, RESET_RECEIVED };

enum { TCP_SYN_SENT = 2, TCP_SYN_RECV = 3, TCP_TIME_WAIT = 6, TCP_CLOSE = 7, TCP_LISTEN = 10, TCP_NEW_SYN_RECV = 12 };

struct ends {
    __u8 src_addr[16];
    __u8 dst_addr[16];
    __u16 family; // 0: unknown
    __u16 src_port;
    __u16 dst_port;
    __u16 padding;
};

// src/tcp.rs makes the fields of the source `tcp` of it.
struct record {
    __u64 at_ns;
    __u64 in_state_ns; // 0: unknown
    __u64 cgroup;      // 0: unknown
    __u32 pid;         // 0: unknown
    __u8 event;
    __u8 from_state;
    __u8 state;
    __u8 padding;
    struct ends ends;
    char comm[16];
};

struct connection {
    __u64 since_ns;
    __u32 pid;
    __u16 src_port; // 0: unknown
    __u16 padding;
    char comm[16];
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1 << 16);
    __type(key, __u64);
    __type(value, struct connection);
} connections SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 64);
    __type(key, __u16);
    __type(value, __u32);
} ports SEC(".maps");

const volatile __u32 by_port;

struct in6_addr {
    union {
        __u8 u6_addr8[16];
    } in6_u;
} __attribute__((preserve_access_index));

struct sock_common {
    __u32 skc_daddr;
    __u32 skc_rcv_saddr;
    __u16 skc_dport;
    __u16 skc_num;
    unsigned short skc_family;
    unsigned char skc_state;
    struct in6_addr skc_v6_daddr;
    struct in6_addr skc_v6_rcv_saddr;
} __attribute__((preserve_access_index));

struct kernfs_node {
    __u64 id;
} __attribute__((preserve_access_index));

struct cgroup {
    int level;
    struct kernfs_node *kn;
    struct cgroup *ancestors[1]; // from the root to this one
} __attribute__((preserve_access_index));

// Before Linux 6.1.
struct cgroup___ids {
    __u64 ancestor_ids[1];
} __attribute__((preserve_access_index));

struct sock_cgroup_data {
    struct cgroup *cgroup; // since Linux 5.15
} __attribute__((preserve_access_index));

struct sock {
    struct sock_common __sk_common;
    __u16 sk_protocol;
    struct sock_cgroup_data sk_cgrp_data;
} __attribute__((preserve_access_index));

struct sk_buff {
    unsigned char *head;
    __u16 network_header;
    __u16 transport_header;
} __attribute__((preserve_access_index));

static __always_inline void ends_of_socket(struct ends *ends, struct sock *sock, struct connection *connection) {
    ends->family = BPF_CORE_READ(sock, __sk_common.skc_family);
    ends->src_port = BPF_CORE_READ(sock, __sk_common.skc_num);
    // A socket gives its port back before it says that it is closed.
    if (connection && ends->src_port)
        connection->src_port = ends->src_port;
    else if (connection)
        ends->src_port = connection->src_port;
    ends->dst_port = __builtin_bswap16(BPF_CORE_READ(sock, __sk_common.skc_dport));
    if (ends->family == AF_INET6) {
        BPF_CORE_READ_INTO(&ends->src_addr, sock, __sk_common.skc_v6_rcv_saddr.in6_u.u6_addr8);
        BPF_CORE_READ_INTO(&ends->dst_addr, sock, __sk_common.skc_v6_daddr.in6_u.u6_addr8);
    } else {
        BPF_CORE_READ_INTO((__u32 *)ends->src_addr, sock, __sk_common.skc_rcv_saddr);
        BPF_CORE_READ_INTO((__u32 *)ends->dst_addr, sock, __sk_common.skc_daddr);
    }
}

// The ends of an answer to a segment for which there is no socket.
static __always_inline void ends_of_answer(struct ends *ends, struct sk_buff *segment) {
    unsigned char *head = BPF_CORE_READ(segment, head);
    unsigned char *ip = head + BPF_CORE_READ(segment, network_header);
    unsigned char *tcp = head + BPF_CORE_READ(segment, transport_header);
    __u16 port[2] = {};
    __u8 version = 0;

    bpf_probe_read_kernel(&version, 1, ip);
    if (version >> 4 == 4) {
        ends->family = AF_INET;
        bpf_probe_read_kernel(ends->dst_addr, 4, ip + 12);
        bpf_probe_read_kernel(ends->src_addr, 4, ip + 16);
    } else if (version >> 4 == 6) {
        ends->family = AF_INET6;
        bpf_probe_read_kernel(ends->dst_addr, 16, ip + 8);
        bpf_probe_read_kernel(ends->src_addr, 16, ip + 24);
    } else {
        return;
    }
    bpf_probe_read_kernel(port, sizeof port, tcp);
    ends->dst_port = __builtin_bswap16(port[0]);
    ends->src_port = __builtin_bswap16(port[1]);
}

// The control group of a socket; nothing if the kernel has none for it.
static __always_inline struct cgroup *group_of(struct sock *sock) {
    __u8 state = BPF_CORE_READ(sock, __sk_common.skc_state);

    // These sockets are shorter and end before the group.
    if (state == TCP_TIME_WAIT || state == TCP_NEW_SYN_RECV || !bpf_core_field_exists(sock->sk_cgrp_data.cgroup))
        return 0;
    return BPF_CORE_READ(sock, sk_cgrp_data.cgroup);
}

static __always_inline __u64 group_id(struct cgroup *group) {
    return group ? BPF_CORE_READ(group, kn, id) : 0;
}

// Whether a group is the one to record, or below it.
static __always_inline int is_group(struct cgroup *group) {
    struct cgroup *ancestor = 0;
    __u64 id = 0;

    if (!only_cgroup)
        return 1;
    if (!group || BPF_CORE_READ(group, level) < only_cgroup_level)
        return 0;
    if (bpf_core_field_exists(group->ancestors)) {
        void *at = (void *)group + bpf_core_field_offset(struct cgroup, ancestors);

        bpf_probe_read_kernel(&ancestor, sizeof ancestor, at + only_cgroup_level * sizeof ancestor);
        return group_id(ancestor) == only_cgroup;
    }
    bpf_probe_read_kernel(&id, sizeof id, (void *)group + bpf_core_field_offset(struct cgroup___ids, ancestor_ids) + only_cgroup_level * sizeof id);
    return id == only_cgroup;
}

static __always_inline int is_port(struct ends *ends) {
    return !by_port || bpf_map_lookup_elem(&ports, &ends->src_port) || bpf_map_lookup_elem(&ports, &ends->dst_port);
}

// Whether the connection is recorded for its process; one without a known process only if all processes are.
static __always_inline int is_wanted(struct connection *connection) {
    __u32 pid = connection ? connection->pid : 0;

    if (!by_process && !by_name)
        return 1;
    return pid && is_selected_process(pid, (struct name *)connection->comm);
}

static __always_inline void
emit(enum event event, struct ends *ends, struct connection *connection, struct cgroup *group, __u8 from_state, __u8 state) {
    __u64 now = bpf_ktime_get_ns();
    struct record *record;

    if (!is_port(ends) || !is_wanted(connection) || !is_group(group))
        return;
    record = RESERVE(record);
    if (!record)
        return;
    record->at_ns = now;
    record->in_state_ns = connection && connection->since_ns ? now - connection->since_ns : 0;
    record->cgroup = group_id(group);
    record->pid = connection ? connection->pid : 0;
    record->event = event;
    record->from_state = from_state;
    record->state = state;
    record->padding = 0;
    record->ends = *ends;
    if (connection)
        __builtin_memcpy(record->comm, connection->comm, sizeof record->comm);
    else
        __builtin_memset(record->comm, 0, sizeof record->comm);
    SUBMIT(record);
}

// Arguments: the socket, its state until now, its state from now on.
SEC("raw_tracepoint")
int set_state(struct bpf_raw_tracepoint_args *ctx) {
    struct sock *sock = (void *)ctx->args[0];
    __u64 key = ctx->args[0];
    __u32 from = ctx->args[1], to = ctx->args[2];
    struct connection fresh = {}, *connection;
    struct ends ends = {};

    if (!is_armed() || BPF_CORE_READ(sock, sk_protocol) != IPPROTO_TCP)
        return 0;
    // These are a socket's first states. In the first two, the process that asked for it runs.
    if (to == TCP_SYN_SENT || to == TCP_LISTEN || to == TCP_SYN_RECV) {
        if (to != TCP_SYN_RECV) {
            fresh.pid = recorded_id() >> 32;
            bpf_get_current_comm(fresh.comm, sizeof fresh.comm);
        }
        bpf_map_update_elem(&connections, &key, &fresh, BPF_ANY);
    }
    connection = bpf_map_lookup_elem(&connections, &key);
    ends_of_socket(&ends, sock, connection);
    emit(STATE, &ends, connection, group_of(sock), from, to);
    if (connection) {
        connection->since_ns = bpf_ktime_get_ns();
        return 0;
    }
    // The connection is older than the recording.
    fresh.since_ns = bpf_ktime_get_ns();
    fresh.src_port = ends.src_port;
    bpf_map_update_elem(&connections, &key, &fresh, BPF_ANY);
    return 0;
}

static __always_inline int of_socket(struct bpf_raw_tracepoint_args *ctx, enum event event) {
    struct sock *sock = (void *)ctx->args[0];
    struct connection *connection;
    __u64 key = ctx->args[0];
    struct ends ends = {};

    if (!is_armed())
        return 0;
    connection = bpf_map_lookup_elem(&connections, &key);
    ends_of_socket(&ends, sock, connection);
    emit(event, &ends, connection, group_of(sock), 0, BPF_CORE_READ(sock, __sk_common.skc_state));
    return 0;
}

// Arguments: the socket, the segment.
SEC("raw_tracepoint")
int retransmit(struct bpf_raw_tracepoint_args *ctx) {
    return of_socket(ctx, RETRANSMIT);
}

// Argument: the socket.
SEC("raw_tracepoint")
int receive_reset(struct bpf_raw_tracepoint_args *ctx) {
    return of_socket(ctx, RESET_RECEIVED);
}

// Arguments: the socket or nothing, the segment that is answered.
SEC("raw_tracepoint")
int send_reset(struct bpf_raw_tracepoint_args *ctx) {
    struct ends ends = {};

    if (ctx->args[0])
        return of_socket(ctx, RESET_SENT);
    if (!is_armed())
        return 0;
    if (ctx->args[1])
        ends_of_answer(&ends, (void *)ctx->args[1]);
    emit(RESET_SENT, &ends, 0, 0, 0, 0);
    return 0;
}
