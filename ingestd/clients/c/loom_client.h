// libloom_client: records through shared memory into a running ingestd. Made by cbindgen of src/lib.rs; a test holds it equal.

#ifndef LOOM_CLIENT_H
#define LOOM_CLIENT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// A connection to the daemon of one directory, and a ring of shared memory for each source that it defines. One thread may use it at a
// time, and no fork of the process. It outlives the daemon: while none runs, records gather in memory of its own, and the next daemon stores
// them; a minute without a daemon makes calls fail.
typedef struct loom_client loom_client;

// What became of the records of this connection, or since the daemon that runs now took its rings over: received = stored + refused +
// dropped.
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

// Connects to the daemon that runs on a Loom directory. `ring_bytes` is the room in each ring: a power of two from 64 KiB to 64 MiB, or 0
// for 8 MiB. Returns 0, or -1. A client is stored in `client` in both cases: `loom_error` says why it is not connected, and `loom_close`
// frees it.
//
// # Safety
// `dir` is a string that ends with NUL, and `client` points to where the client goes.
int loom_connect(const char *dir,
                 uint64_t ring_bytes,
                 loom_client **client);

// Defines the first `[[source]]` of a TOML text, and opens a ring for it. A source that exists is not an error. Returns 0, or -1.
//
// # Safety
// `client` comes from `loom_connect`, `toml` is a string that ends with NUL, and `source` points to where its number goes.
int loom_define(loom_client *client,
                const char *toml,
                uint16_t *source);

// Pushes one payload in the layout of its source, without the own time: if the source has own time, it is the time of this call. No system
// call is made unless the ring is full or no daemon runs. If it is full, this waits for room, or the record is dropped and counted, as the source's
// `on_overload` says. Returns 0, or -1.
//
// # Safety
// `client` comes from `loom_connect`, and `payload` points to so many bytes.
int loom_push(loom_client *client,
              uint16_t source,
              const uint8_t *payload,
              size_t bytes);

// Returns when everything pushed before is visible to queries. `counts` may be NULL. Returns 0, or -1.
//
// # Safety
// `client` comes from `loom_connect`, and `counts` points to where the counts go, or is NULL.
int loom_sync(loom_client *client, loom_counts *counts);

// Ends the connection and frees the client. The daemon takes what stands in the rings; only a sync before it shows that. What waits for the next
// daemon goes to it if it runs by now, and is lost otherwise. NULL is allowed.
//
// # Safety
// `client` comes from `loom_connect` and is not used any more.
void loom_close(loom_client *client);

// Why the latest call that failed did so; empty if none did. The text is valid until the next call.
//
// # Safety
// `client` comes from `loom_connect`.
const char *loom_error(const loom_client *client);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LOOM_CLIENT_H */
