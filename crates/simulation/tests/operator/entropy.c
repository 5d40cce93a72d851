/* Preloaded into a simulation. Every thread gets the same random numbers, derived from $SIMULATION_SEED, when the product or a
 * library asks for randomness. The state is per thread, so requests of other threads of the test harness change nothing. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

static __thread uint64_t state;
static __thread int seeded;

static uint64_t next(void) {
    uint64_t mixed;
    if (!seeded) {
        const char *text = getenv("SIMULATION_SEED");
        state = text ? strtoull(text, 0, 10) * 0x2545F4914F6CDD1DULL + 1 : 1;
        seeded = 1;
    }
    state += 0x9E3779B97F4A7C15ULL;
    mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
    return mixed ^ (mixed >> 31);
}

ssize_t getrandom(void *buffer, size_t length, unsigned int flags) {
    unsigned char *bytes = buffer;
    (void)flags;
    for (size_t i = 0; i < length; i += 8) {
        uint64_t number = next();
        for (size_t j = i; j < length && j < i + 8; j++, number >>= 8) bytes[j] = number & 255;
    }
    return (ssize_t)length;
}

int getentropy(void *buffer, size_t length) {
    getrandom(buffer, length, 0);
    return 0;
}
