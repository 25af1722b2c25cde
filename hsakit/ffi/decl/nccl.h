/* What hsakit uses of nccl.h (2.28), written as cffi declarations. Conventions: see hsa.h beside it. */

typedef uint64_t hsakit_opaque;         /* struct something * */
typedef uint64_t hsakit_address;        /* void * */
typedef uint64_t hsakit_const_address;  /* const void * */

typedef hsakit_opaque cudaStream_t;
typedef hsakit_opaque ncclComm_t;
typedef hsakit_opaque ncclWindow_t;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclInvalidArgument = 4
} ncclResult_t;

typedef enum {
    ncclUint8 = 1
} ncclDataType_t;

typedef struct {
    char internal[128];
} ncclUniqueId;

typedef struct ncclConfig_v22800 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare;
    int trafficClass;
    const char *commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
} ncclConfig_t;

const char *ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist);
ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclMemAlloc(hsakit_address *ptr, size_t size);
ncclResult_t ncclMemFree(hsakit_address ptr);
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, hsakit_address buff, size_t size, ncclWindow_t *win, int winFlags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllGather(hsakit_const_address sendbuff, hsakit_address recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAlltoAll(hsakit_const_address sendbuff, hsakit_address recvbuff, size_t count, ncclDataType_t datatype,
                          ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(hsakit_const_address sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(hsakit_address recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);
