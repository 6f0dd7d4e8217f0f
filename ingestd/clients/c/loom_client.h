// libloom_client pushes records to a running ingestd through shared memory. cbindgen makes this file from src/lib.rs; a test compares them.

#ifndef LOOM_CLIENT_H
#define LOOM_CLIENT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// A connection to the daemon of one directory, with a ring of shared memory for each source that it defines. One thread may use it at a time,
// and no fork of the process. It outlives the daemon: while none runs, records wait in its own memory, and the next daemon stores them. After
// a minute without a daemon, calls fail.
typedef struct loom_client loom_client;

// The counts of this connection's records, or the counts since the current daemon took over its rings: received = stored + refused + dropped.
typedef struct {
  uint64_t received;
  uint64_t stored;
  uint64_t refused;
  uint64_t dropped;
  // The end of the record log: pass it as `at` to query exactly these records.
  uint64_t position;
} loom_counts;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Connects to the daemon that runs on a Loom directory. `ring_bytes` is the size of each ring: a power of two from 64 KiB to 64 MiB, or 0 for
// 8 MiB. Returns 0, or -1. In both cases it stores a client in `client`: `loom_error` says why it is not connected, and `loom_close` frees it.
//
// # Safety
// `dir` is a string that ends with NUL, and `client` points to a place for the client.
int loom_connect(const char *dir,
                 uint64_t ring_bytes,
                 loom_client **client);

// Defines the first `[[source]]` of a TOML text, and opens a ring for it. A source that exists is not an error. Returns 0, or -1.
//
// # Safety
// `client` comes from `loom_connect`, `toml` is a string that ends with NUL, and `source` points to a place for its number.
int loom_define(loom_client *client,
                const char *toml,
                uint16_t *source);

// Pushes one payload in the layout of its source, without the own time: if the source has own time, it is the time of this call. It makes no
// system call unless the ring is full or no daemon runs. If the ring is full, it waits for space, or drops and counts the record, as the
// source's `on_overload` says. Returns 0, or -1.
//
// # Safety
// `client` comes from `loom_connect`, and `payload` points to so many bytes.
int loom_push(loom_client *client,
              uint16_t source,
              const uint8_t *payload,
              size_t bytes);

// Returns when everything that was pushed before is visible to queries. `counts` may be NULL. Returns 0, or -1.
//
// # Safety
// `client` comes from `loom_connect`, and `counts` points to a place for the counts, or is NULL.
int loom_sync(loom_client *client, loom_counts *counts);

// Ends the connection and frees the client. The daemon takes the records in the rings; only a sync before it shows that. Records that wait for
// the next daemon go to it if it runs by now, and are lost otherwise. NULL is allowed.
//
// # Safety
// `client` comes from `loom_connect` and is not used any more.
void loom_close(loom_client *client);

// Returns the error of the latest call that failed; empty if none did. The text is valid until the next call.
//
// # Safety
// `client` comes from `loom_connect`.
const char *loom_error(const loom_client *client);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LOOM_CLIENT_H */
