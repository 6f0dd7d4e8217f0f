// Follows the processes that a recorded process starts, for the programs of events that have a beginning and an end.
#pragma once
#include "select.h"

SEC("raw_tracepoint")
int process_fork(struct bpf_raw_tracepoint_args *ctx) {
    follow_fork(ctx);
    return 0;
}
