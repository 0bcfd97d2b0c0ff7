/* NCCL's words as the numbers of ring.h. */
#include <string.h>

#include "tap.h"

struct word {
    const char *text;
    uint8_t number;
};

static uint8_t number(const struct word *words, const char *text) {
    for (; words->text; words++)
        if (*words->text == *text && !strcmp(words->text, text)) return words->number;
    return 0;
}

uint8_t ww_function(const char *word) {
    static const struct word words[] = {
        {"AllReduce", WW_ALL_REDUCE}, {"AllGather", WW_ALL_GATHER}, {"ReduceScatter", WW_REDUCE_SCATTER},
        {"Send", WW_SEND}, {"Recv", WW_RECV}, {"Broadcast", WW_BROADCAST}, {"Reduce", WW_REDUCE},
        {"AlltoAll", WW_ALL_TO_ALL}, {"Gather", WW_GATHER}, {"Scatter", WW_SCATTER}, {"SendRecv", WW_SEND_RECV},
        {NULL, 0},
    };
    return word ? number(words, word) : WW_FUNCTION_UNKNOWN;
}

uint8_t ww_datatype(const char *word) {
    static const struct word words[] = { /* after "nccl" */
        {"Bfloat16", WW_BFLOAT16}, {"Float32", WW_FLOAT32}, {"Float16", WW_FLOAT16}, {"Int8", WW_INT8},
        {"Float64", WW_FLOAT64}, {"Int32", WW_INT32}, {"Int64", WW_INT64}, {"Uint8", WW_UINT8},
        {"Uint32", WW_UINT32}, {"Uint64", WW_UINT64}, {"Float8e4m3", WW_FLOAT8E4M3}, {"Float8e5m2", WW_FLOAT8E5M2},
        {NULL, 0},
    };
    return word && !strncmp(word, "nccl", 4) ? number(words, word + 4) : WW_DATATYPE_UNKNOWN;
}

uint8_t ww_algorithm(const char *word) {
    static const struct word words[] = {
        {"RING", WW_RING}, {"TREE", WW_TREE}, {"NVLS", WW_NVLS}, {"NVLS_TREE", WW_NVLS_TREE}, {"PAT", WW_PAT},
        {"COLLNET_DIRECT", WW_COLLNET_DIRECT}, {"COLLNET_CHAIN", WW_COLLNET_CHAIN}, {NULL, 0},
    };
    return word ? number(words, word) : WW_ALGORITHM_UNKNOWN;
}

uint8_t ww_protocol(const char *word) {
    static const struct word words[] = {{"SIMPLE", WW_SIMPLE}, {"LL", WW_LL}, {"LL128", WW_LL128}, {NULL, 0}};
    return word ? number(words, word) : WW_PROTOCOL_UNKNOWN;
}

uint32_t ww_element_bytes(uint8_t datatype) {
    switch (datatype) {
    case WW_INT8:
    case WW_UINT8:
    case WW_FLOAT8E4M3:
    case WW_FLOAT8E5M2:
        return 1;
    case WW_FLOAT16:
    case WW_BFLOAT16:
        return 2;
    case WW_INT32:
    case WW_UINT32:
    case WW_FLOAT32:
        return 4;
    case WW_INT64:
    case WW_UINT64:
    case WW_FLOAT64:
        return 8;
    default:
        return 0;
    }
}

bool ww_counts_one_rank(uint8_t function) {
    switch (function) {
    case WW_ALL_GATHER:
    case WW_REDUCE_SCATTER:
    case WW_ALL_TO_ALL:
    case WW_GATHER:
    case WW_SCATTER:
        return true;
    default:
        return false;
    }
}
