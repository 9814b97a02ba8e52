/* The few names of NCCL (2.14 or later) and of the CUDA runtime (11 or later) that nccl.c uses, declared here so that the
 * build needs neither's headers. Their binary interfaces have kept these since. tests/system/test_backend_headers.py compiles
 * this file against the real headers, where they are, with NCCL_ABI_VERIFY.
 */
#ifndef TR_COLLECTIVES_BACKEND_NCCL_ABI_H
#define TR_COLLECTIVES_BACKEND_NCCL_ABI_H

#include <stddef.h>

#ifdef NCCL_ABI_VERIFY
#include <nccl.h>
typedef ncclComm_t nccl_comm;
typedef ncclUniqueId nccl_id;
typedef ncclResult_t nccl_result;
typedef ncclDataType_t nccl_dtype;
typedef ncclRedOp_t nccl_reduce;
typedef ncclConfig_t nccl_config_type;
typedef cudaError_t cuda_error;
typedef cudaStream_t cuda_stream;
typedef cudaEvent_t cuda_event;
typedef enum cudaMemcpyKind cuda_copy;
#else
typedef struct nccl_opaque_comm *nccl_comm;
typedef struct {
	char internal[128];
} nccl_id;
typedef int nccl_result;
typedef int nccl_dtype;
typedef int nccl_reduce;
typedef struct nccl_config nccl_config_type;
typedef int cuda_error;
typedef struct cuda_opaque_stream *cuda_stream;
typedef struct cuda_opaque_event *cuda_event;
typedef int cuda_copy;
#endif

/* ncclConfig_t as of 2.14; later ones are longer and read what a version covers. */
struct nccl_config {
	size_t size;
	unsigned int magic, version;
	int blocking;
	int unused;
};
#define NCCL_CONFIG_MAGIC   0xcafebeefu
#define NCCL_CONFIG_VERSION 21400u
#define NCCL_VERSION_LEAST  21400

enum {
	NCCL_OK = 0,
	NCCL_INVALID_ARGUMENT = 4,
	NCCL_IN_PROGRESS = 7,
	NCCL_UINT8 = 1,
	NCCL_INT32 = 2,
	NCCL_INT64 = 4,
	NCCL_FLOAT16 = 6,
	NCCL_FLOAT32 = 7,
	NCCL_FLOAT64 = 8,
	NCCL_BFLOAT16 = 9,
	NCCL_SUM = 0,
	NCCL_PROD = 1,
	NCCL_MAX = 2,
	NCCL_MIN = 3,
	CUDA_OK = 0,
	CUDA_NOT_READY = 600,
	CUDA_HOST_TO_DEVICE = 1,
	CUDA_DEVICE_TO_HOST = 2,
	CUDA_DEVICE_TO_DEVICE = 3,
	CUDA_STREAM_NON_BLOCKING = 1,
	CUDA_EVENT_DISABLE_TIMING = 2,
	CUDA_HOST_ALLOC_DEFAULT = 0,
	CUDA_HOST_REGISTER_DEFAULT = 0,
};

/* X(result, name, parameters) */
#define NCCL_CALLS(X)                                                                             \
	X(nccl_result, ncclGetVersion, (int *))                                                   \
	X(nccl_result, ncclGetUniqueId, (nccl_id *))                                              \
	X(nccl_result, ncclCommInitRankConfig,                                                    \
	    (nccl_comm *, int, nccl_id, int, nccl_config_type *))                                 \
	X(nccl_result, ncclCommGetAsyncError, (nccl_comm, nccl_result *))                         \
	X(nccl_result, ncclCommFinalize, (nccl_comm))                                             \
	X(nccl_result, ncclCommDestroy, (nccl_comm))                                              \
	X(nccl_result, ncclCommAbort, (nccl_comm))                                                \
	X(nccl_result, ncclGroupStart, (void))                                                    \
	X(nccl_result, ncclGroupEnd, (void))                                                      \
	X(nccl_result, ncclAllReduce,                                                             \
	    (const void *, void *, size_t, nccl_dtype, nccl_reduce, nccl_comm, cuda_stream))      \
	X(nccl_result, ncclReduceScatter,                                                         \
	    (const void *, void *, size_t, nccl_dtype, nccl_reduce, nccl_comm, cuda_stream))      \
	X(nccl_result, ncclAllGather,                                                             \
	    (const void *, void *, size_t, nccl_dtype, nccl_comm, cuda_stream))                   \
	X(nccl_result, ncclBroadcast,                                                             \
	    (const void *, void *, size_t, nccl_dtype, int, nccl_comm, cuda_stream))              \
	X(nccl_result, ncclReduce,                                                                \
	    (const void *, void *, size_t, nccl_dtype, nccl_reduce, int, nccl_comm, cuda_stream)) \
	X(const char *, ncclGetErrorString, (nccl_result))                                        \
	X(const char *, ncclGetLastError, (nccl_comm))

#define CUDA_CALLS(X)                                                                          \
	X(cuda_error, cudaGetDeviceCount, (int *))                                             \
	X(cuda_error, cudaGetDevice, (int *))                                                  \
	X(cuda_error, cudaSetDevice, (int))                                                    \
	X(cuda_error, cudaMalloc, (void **, size_t))                                           \
	X(cuda_error, cudaFree, (void *))                                                      \
	X(cuda_error, cudaHostAlloc, (void **, size_t, unsigned int))                          \
	X(cuda_error, cudaFreeHost, (void *))                                                  \
	X(cuda_error, cudaHostRegister, (void *, size_t, unsigned int))                        \
	X(cuda_error, cudaHostUnregister, (void *))                                            \
	X(cuda_error, cudaMemcpyAsync, (void *, const void *, size_t, cuda_copy, cuda_stream)) \
	X(cuda_error, cudaStreamCreateWithFlags, (cuda_stream *, unsigned int))                \
	X(cuda_error, cudaStreamDestroy, (cuda_stream))                                        \
	X(cuda_error, cudaStreamSynchronize, (cuda_stream))                                    \
	X(cuda_error, cudaStreamWaitEvent, (cuda_stream, cuda_event, unsigned int))            \
	X(cuda_error, cudaEventCreateWithFlags, (cuda_event *, unsigned int))                  \
	X(cuda_error, cudaEventRecord, (cuda_event, cuda_stream))                              \
	X(cuda_error, cudaEventQuery, (cuda_event))                                            \
	X(cuda_error, cudaEventDestroy, (cuda_event))                                          \
	X(cuda_error, cudaGetLastError, (void))                                                \
	X(const char *, cudaGetErrorString, (cuda_error))

/* The functions, by their own names: calls.ncclReduce(...). */
#define NCCL_ABI_POINTER(result, name, parameters) result(*name) parameters;
struct nccl_calls {
	NCCL_CALLS(NCCL_ABI_POINTER)
	CUDA_CALLS(NCCL_ABI_POINTER)
};

#endif
