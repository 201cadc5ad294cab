/* Runs one compiled worker on memory that a file describes, and writes that memory back.
 *
 * The file holds 64-bit numbers and bytes: the count of buffers, then of each its size and bytes;
 * the count of fields, then of each the buffer it points into (or -1) and the offset (or value).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

extern void WORKER(void *call);

static int64_t number(FILE *file)
{
    int64_t value;
    if (fread(&value, sizeof value, 1, file) != 1)
        exit(2);
    return value;
}

int main(int count, char **arguments)
{
    FILE *file = count == 2 ? fopen(arguments[1], "r+b") : NULL;
    if (!file)
        return 2;
    int64_t buffers = number(file);
    char **memory = malloc(buffers * sizeof *memory);
    int64_t *size = malloc(buffers * sizeof *size);
    for (int64_t i = 0; i < buffers; i++) {
        size[i] = number(file);
        memory[i] = aligned_alloc(4096, (size[i] + 4095) / 4096 * 4096);
        if (fread(memory[i], 1, size[i], file) != (size_t)size[i])
            return 2;
    }
    int64_t fields = number(file);
    int64_t *call = malloc(fields * sizeof *call);
    for (int64_t i = 0; i < fields; i++) {
        int64_t buffer = number(file), value = number(file);
        call[i] = buffer < 0 ? value : (int64_t)(memory[buffer] + value);
    }
    WORKER(call);
    rewind(file);
    for (int64_t i = 0; i < buffers; i++)
        if (fwrite(memory[i], 1, size[i], file) != (size_t)size[i])
            return 2;
    return fclose(file) == 0 ? 0 : 2;
}
