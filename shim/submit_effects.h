/* What a submit row may do beside running on its stream, and the bits by which its stub knows
 * whether somebody wants to look at it. Read by C++ and by the assembler: macros and nothing else.
 */
#define CACHEALLOC_WATCH_UNBOUND 1      /* no driver has been taken over: who is to be called? */
#define CACHEALLOC_WATCH_PER_THREAD 2   /* the first use of a per-thread default stream matters */
#define CACHEALLOC_WATCH_USE 4          /* which streams are in use matters */
#define CACHEALLOC_WATCH_COUNT 8        /* a test counts */
#define CACHEALLOC_WATCH_HOST 16        /* what the host may see matters */
#define CACHEALLOC_WATCH_ALL_SUBMITS 32 /* each submit matters */
#define CACHEALLOC_WATCH_NEW_STREAMS 64 /* new streams get their first work */

#define CACHEALLOC_EVERY_ROW                                                                       \
    (CACHEALLOC_WATCH_UNBOUND | CACHEALLOC_WATCH_PER_THREAD | CACHEALLOC_WATCH_USE |               \
     CACHEALLOC_WATCH_COUNT | CACHEALLOC_WATCH_ALL_SUBMITS | CACHEALLOC_WATCH_NEW_STREAMS)

/* The bits that stop a row with this effect. */
#define CACHEALLOC_STOPS_work CACHEALLOC_EVERY_ROW
#define CACHEALLOC_STOPS_to_host (CACHEALLOC_EVERY_ROW | CACHEALLOC_WATCH_HOST)
#define CACHEALLOC_STOPS_callback (CACHEALLOC_EVERY_ROW | CACHEALLOC_WATCH_HOST)
#define CACHEALLOC_STOPS_graph (CACHEALLOC_EVERY_ROW | CACHEALLOC_WATCH_HOST)
