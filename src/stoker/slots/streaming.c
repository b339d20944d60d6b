/* Copying rows past the caches.
 *
 * An ordinary store first reads the line it is going to overwrite; for a batch that is larger than the caches this
 * moves every byte three times (read source, read target, write target) instead of twice. Streaming stores leave out
 * the second. They are ordered by the fence at the end only, so that whoever is told about the rows afterwards sees
 * them. Loaded with ctypes, which needs no headers of Python's and lets go of the interpreter lock during the call.
 */

#include <emmintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LINE = 64, WORD = sizeof(__m128i) };

static void stream(char *target, const char *source, size_t size) {
    size_t head = -(uintptr_t)target & (LINE - 1);
    if (head > size)
        head = size;
    memcpy(target, source, head);
    target += head, source += head, size -= head;
    for (; size >= LINE; target += LINE, source += LINE, size -= LINE)
        for (size_t at = 0; at < LINE; at += WORD)
            _mm_stream_si128((__m128i *)(target + at), _mm_loadu_si128((const __m128i *)(source + at)));
    memcpy(target, source, size);
}

void stream_rows(char *target, const char *const *rows, size_t count, size_t row_bytes) {
    for (size_t row = 0; row < count; row++)
        stream(target + row * row_bytes, rows[row], row_bytes);
    _mm_sfence();
}
