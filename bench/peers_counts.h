/* peers_counts.h - what ptxrun counts of a launch of ours and of a peer's, the row of a pair. */

#ifndef SPECV_BENCH_PEERS_COUNTS_H
#define SPECV_BENCH_PEERS_COUNTS_H

typedef struct peers_counts {
    long long threads, warps, bytes, sectors, trips, launches;
} peers_counts;

static void start_counting(void) {
    bench_wait();
    bench_profile(1);
}

/* Bytes are what lanes ask for, each lane for itself; sectors those of 32 bytes that the loads,
   stores and atomics of warps touch, each instruction for itself. */
static peers_counts stop_counting(void) {
    peers_counts c;
    bench_wait();
    bench_profile(0);
    c.threads = ptxrun_count(NULL, "thread_instructions");
    c.warps = ptxrun_count(NULL, "warp_instructions");
    c.bytes = ptxrun_count(NULL, "load_bytes") + ptxrun_count(NULL, "store_bytes") +
              ptxrun_count(NULL, "atomic_bytes");
    c.sectors = ptxrun_count(NULL, "load_sectors") + ptxrun_count(NULL, "store_sectors") +
                ptxrun_count(NULL, "atomic_sectors");
    c.trips = ptxrun_count(NULL, "serial_trips");
    c.launches = ptxrun_count(NULL, "launches");
    return c;
}

static void print_pair(const char *pair, const char *shape, const char *peer, peers_counts ours,
                       peers_counts its) {
    if (its.launches <= 0 || its.threads <= 0) bench_fail("a peer that launched nothing", -1);
    printf("%s,%s,%s,%lld,%lld,%.2f,%lld,%lld,%.2f,", pair, shape, peer, ours.threads, its.threads,
           (double)ours.threads / (double)its.threads, ours.warps, its.warps,
           (double)ours.warps / (double)its.warps);
    printf("%lld,%lld,%.2f,%lld,%lld,%.2f,%lld,%lld,%lld,%lld\n", ours.bytes, its.bytes,
           (double)ours.bytes / (double)its.bytes, ours.sectors, its.sectors,
           (double)ours.sectors / (double)its.sectors, ours.trips, its.trips, ours.launches,
           its.launches);
    fflush(stdout);
}

#endif
