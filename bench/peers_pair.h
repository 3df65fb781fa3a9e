/* peers_pair.h - the two sides of a pair, ours and a peer's, and its row: what ptxrun counts of a
   launch of each, or, on a GPU, how long one takes. */

#ifndef SPECV_BENCH_PEERS_PAIR_H
#define SPECV_BENCH_PEERS_PAIR_H

typedef struct peers_side {
    bench_launch launch;
    const void *context;
    long long threads, warps, bytes, sectors, trips, launches; /* counted */
    bench_times events, graph, cold; /* timed; cold: nothing of it is in the L2, its code neither */
} peers_side;

/* One launch, whose results the caller judges. Bytes are what lanes ask for, each lane for itself;
   sectors those of 32 bytes that the loads, stores and atomics of warps touch, each instruction for
   itself. */
static peers_side launch_side(const char *who, bench_launch launch, const void *context) {
    peers_side s = {launch, context, 0, 0, 0, 0, 0, 0, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}};
    int status;
    bench_wait();
    if (bench.interpreted) bench_profile(1);
    status = launch(context, 0, bench.stream);
    if (status) bench_fail(who, status);
    bench_wait();
    if (!bench.interpreted) return s;
    bench_profile(0);
    s.threads = ptxrun_count(NULL, "thread_instructions");
    s.warps = ptxrun_count(NULL, "warp_instructions");
    s.bytes = ptxrun_count(NULL, "load_bytes") + ptxrun_count(NULL, "store_bytes") +
              ptxrun_count(NULL, "atomic_bytes");
    s.sectors = ptxrun_count(NULL, "load_sectors") + ptxrun_count(NULL, "store_sectors") +
                ptxrun_count(NULL, "atomic_sectors");
    s.trips = ptxrun_count(NULL, "serial_trips");
    s.launches = ptxrun_count(NULL, "launches");
    return s;
}

/* The same launch again and again, on a GPU: once it is judged, for a peer may add to what it wrote
   before. */
static void time_side(peers_side *s) {
    if (bench.interpreted || s->graph.p50 > 0) return;
    s->graph = bench_time_graph(s->launch, s->context, 1);
    s->events = bench_time_events(s->launch, s->context, 1, 0);
    s->cold = bench_time_events(s->launch, s->context, 1, 1);
}

/* By what two runs of one side differ from seed to seed. */
static int compare_sides(const void *a, const void *b) {
    const peers_side *x = (const peers_side *)a, *y = (const peers_side *)b;
    if (x->graph.p50 != y->graph.p50) return x->graph.p50 < y->graph.p50 ? -1 : 1;
    return x->threads < y->threads ? -1 : x->threads > y->threads;
}

static void print_pair_columns(void) {
    if (bench.interpreted)
        printf("pair,shape,peer,ours_thread_instructions,peer_thread_instructions,thread_ratio,"
               "ours_warp_instructions,peer_warp_instructions,warp_ratio,ours_bytes,peer_bytes,"
               "bytes_ratio,ours_sectors,peer_sectors,sectors_ratio,ours_serial_trips,peer_serial_"
               "trips,ours_launches,peer_launches\n");
    else
        printf("pair,shape,peer,ours_graph_us_p10,ours_graph_us_p50,ours_graph_us_p90,"
               "peer_graph_us_p10,peer_graph_us_p50,peer_graph_us_p90,graph_ratio,ours_us_p50,"
               "peer_us_p50,ratio,ours_cold_us_p50,peer_cold_us_p50,cold_ratio\n");
}

/* Ratios are ours over theirs. */
static void print_pair(const char *pair, const char *shape, const char *peer, peers_side ours,
                       peers_side its) {
    if (BENCH_IS_SIMULATED) return; /* it says how many cycles each kernel took */
    printf("%s,%s,%s,", pair, shape, peer);
    if (!bench.interpreted) {
        time_side(&ours), time_side(&its);
        printf("%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.2f,", ours.graph.p10, ours.graph.p50,
               ours.graph.p90, its.graph.p10, its.graph.p50, its.graph.p90,
               ours.graph.p50 / its.graph.p50);
        printf("%.3f,%.3f,%.2f,%.3f,%.3f,%.2f\n", ours.events.p50, its.events.p50,
               ours.events.p50 / its.events.p50, ours.cold.p50, its.cold.p50,
               ours.cold.p50 / its.cold.p50);
        fflush(stdout);
        return;
    }
    if (its.launches <= 0 || its.threads <= 0) bench_fail("a peer that launched nothing", -1);
    printf("%lld,%lld,%.2f,%lld,%lld,%.2f,", ours.threads, its.threads,
           (double)ours.threads / (double)its.threads, ours.warps, its.warps,
           (double)ours.warps / (double)its.warps);
    printf("%lld,%lld,%.2f,%lld,%lld,%.2f,%lld,%lld,%lld,%lld\n", ours.bytes, its.bytes,
           (double)ours.bytes / (double)its.bytes, ours.sectors, its.sectors,
           (double)ours.sectors / (double)its.sectors, ours.trips, its.trips, ours.launches,
           its.launches);
    fflush(stdout);
}

#endif
