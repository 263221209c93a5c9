/* A libnvidia-ml.so.1 that says what a script says. Built by tests/unit/nvml_stub.py.
 *
 * NVML_STUB names the script, one answer a line:
 *
 *     gpu    0000:3b:00 GPU-aaaa        a GPU; they count from 0
 *     CALL   GPU RETURN VALUE...        what CALL answers for that GPU ("-": of the node)
 *     CALL   GPU once:RETURN            the first time only
 *     hang   GPU CALL                   CALL never returns
 *     slow   GPU CALL MILLISECONDS
 *     event  GPU once:0 TYPE DATA       an event for whoever waits; "event - once:15": the wait fails
 *
 * Anything without a line answers NVML_ERROR_NOT_SUPPORTED. -DOLD_DRIVER leaves out what drivers of 2018 lack. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define OK 0
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define TIMEOUT 10
#define VALUES 8
#define GPUS 16

typedef struct { int index; } Device;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } PciInfo;
typedef struct {
    unsigned field, scope; long long timestamp, latency; int type, returned;
    union { double d; unsigned ui; unsigned long long ull; } value;
} FieldValue;
typedef struct { unsigned version; unsigned long long counts[11]; unsigned threshold_exceeded; } Sram;
typedef struct { Device *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } EventData;
typedef struct {
    unsigned version; unsigned char cluster[16]; int status; unsigned clique; unsigned char state;
    unsigned health; unsigned char summary;
} Fabric;

static Device devices[GPUS];
static char addresses[GPUS][32], uuids[GPUS][96];
static unsigned long long registered[GPUS];
static int gpus;
static char used[256][128];
static int uses;

static FILE *script(void) {
    const char *path = getenv("NVML_STUB");
    return path ? fopen(path, "r") : NULL;
}

static void load(void) {
    char line[512], pci[32], uuid[96];
    FILE *file = script();
    gpus = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "gpu %31s %95s", pci, uuid) == 2 && gpus < GPUS) {
            devices[gpus].index = gpus;
            strcpy(addresses[gpus], pci);
            strcpy(uuids[gpus++], uuid);
        }
    if (file) fclose(file);
}

static int spent(const char *line) {
    for (int i = 0; i < uses; i++) if (!strncmp(used[i], line, 127)) return 1;
    if (uses < 256) strncpy(used[uses++], line, 127);
    return 0;
}

/* The script's answer to `call` for `gpu` (-1: the node); `absent` where it has none. */
static int answer(const char *call, int gpu, long long *values, int absent) {
    char line[512], name[64], whom[16], what[64], mine[16];
    int result = absent, found = 0, ms = 0;
    FILE *file = script();
    if (gpu < 0) strcpy(mine, "-"); else snprintf(mine, sizeof mine, "%d", gpu);
    while (file && !found && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%63s %15s %63s", name, whom, what) != 3 || strcmp(whom, mine)) continue;
        if (!strcmp(name, "hang") && !strcmp(what, call)) for (;;) pause();
        if (!strcmp(name, "slow") && !strcmp(what, call) && sscanf(line, "%*s %*s %*s %d", &ms) == 1) usleep(ms * 1000);
        if (strcmp(name, call)) continue;
        if (!strncmp(what, "once:", 5)) {
            if (spent(line)) continue;
            result = atoi(what + 5);
        } else {
            result = atoi(what);
        }
        if (values)
            sscanf(line, "%*s %*s %*s %lli %lli %lli %lli", &values[0], &values[1], &values[2], &values[3]);
        found = 1;
    }
    if (file) fclose(file);
    return result;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; load(); return answer("init", -1, NULL, OK); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { static char text[32]; snprintf(text, sizeof text, "stub error %d", code); return text; }

int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "570.124.06"); return OK; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    long long v[VALUES] = {gpus};
    int result = answer("count", -1, v, OK);
    *count = (unsigned)v[0];
    return result;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, Device **device) {
    for (int i = 0; i < gpus; i++)
        if (!strncasecmp(address, addresses[i], strlen(addresses[i]))) {
            *device = &devices[i];
            return answer("handle", i, NULL, OK);
        }
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (index >= (unsigned)gpus) return NOT_FOUND;
    *device = &devices[index];
    return answer("handle", (int)index, NULL, OK);
}

int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *info) {
    memset(info, 0, sizeof *info);
    snprintf(info->bus_id, sizeof info->bus_id, "0000%s.0", addresses[device->index]); /* eight digits of domain */
    return answer("pci_info", device->index, NULL, OK);
}

int nvmlEventSetCreate(void **set) { static int one; *set = &one; return answer("event_set", -1, NULL, OK); }
int nvmlEventSetFree(void *set) { (void)set; return OK; }

int nvmlDeviceGetSupportedEventTypes(Device *device, unsigned long long *types) {
    long long v[VALUES] = {0xff9f};
    int result = answer("event_types", device->index, v, OK);
    *types = (unsigned long long)v[0];
    return result;
}

int nvmlDeviceRegisterEvents(Device *device, unsigned long long types, void *set) {
    (void)set;
    registered[device->index] = types;
    return answer("register", device->index, NULL, OK);
}

/* Only what was registered for comes, as from the driver. */
int nvmlEventSetWait_v2(void *set, EventData *data, unsigned timeout_ms) {
    (void)set;
    for (unsigned waited = 0; waited <= timeout_ms; waited += 20, usleep(20000)) {
        int result = answer("event", -1, NULL, TIMEOUT);
        if (result != TIMEOUT) return result;
        for (int i = 0; i < gpus; i++) {
            long long v[VALUES] = {0};
            if (answer("event", i, v, NOT_SUPPORTED) != OK || !(registered[i] & (unsigned long long)v[0])) continue;
            *data = (EventData){&devices[i], (unsigned long long)v[0], (unsigned long long)v[1], ~0u, ~0u};
            return OK;
        }
    }
    return TIMEOUT;
}

int nvmlDeviceGetUUID(Device *device, char *text, unsigned size) {
    snprintf(text, size, "%s", uuids[device->index]);
    return answer("uuid", device->index, NULL, OK);
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    long long v[VALUES] = {0};
    int result = answer("mig", device->index, v, NOT_SUPPORTED);
    *current = *pending = (unsigned)v[0];
    return result;
}

int nvmlDeviceGetPcieReplayCounter(Device *device, unsigned *count) {
    long long v[VALUES] = {0};
    int result = answer("pcie_replay", device->index, v, NOT_SUPPORTED);
    *count = (unsigned)v[0];
    return result;
}

int nvmlDeviceGetRetiredPages(Device *device, int cause, unsigned *count, unsigned long long *pages) {
    long long v[VALUES] = {0};
    int result = answer("retired_pages", device->index, v, NOT_SUPPORTED);
    if (cause != 1) v[0] = 0;
    if (result == OK && *count < v[0]) result = INSUFFICIENT_SIZE;
    if (result == OK) for (long long i = 0; i < v[0]; i++) pages[i] = 4096 * (unsigned long long)i;
    *count = (unsigned)v[0];
    return result;
}

int nvmlDeviceGetRetiredPagesPendingStatus(Device *device, int *pending) {
    long long v[VALUES] = {0};
    int result = answer("retired_pending", device->index, v, NOT_SUPPORTED);
    *pending = (int)v[0];
    return result;
}

int nvmlDeviceGetTotalEccErrors(Device *device, int type, int counter, unsigned long long *count) {
    long long v[VALUES] = {0};
    int result = answer(counter ? "ecc_aggregate" : "ecc_volatile", device->index, v, NOT_SUPPORTED);
    *count = type == 1 ? (unsigned long long)v[0] : 0;
    return result;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetRemappedRows(Device *device, unsigned *c, unsigned *u, unsigned *pending, unsigned *failure) {
    long long v[VALUES] = {0};
    int result = answer("remapped_rows", device->index, v, NOT_SUPPORTED);
    *c = (unsigned)v[0]; *u = (unsigned)v[1]; *pending = (unsigned)v[2]; *failure = (unsigned)v[3];
    return result;
}

/* "remap_histogram GPU RETURN NONE": that many banks without a spare row. */
int nvmlDeviceGetRowRemapperHistogram(Device *device, unsigned *histogram) {
    long long v[VALUES] = {0};
    int result = answer("remap_histogram", device->index, v, NOT_SUPPORTED);
    for (int i = 0; i < 5; i++) histogram[i] = i < 4 ? 100u : (unsigned)v[0];
    return result;
}

int nvmlDeviceGetSramEccErrorStatus(Device *device, Sram *status) {
    long long v[VALUES] = {0};
    int result = answer("sram", device->index, v, NOT_SUPPORTED);
    status->threshold_exceeded = (unsigned)v[0];
    return result;
}

/* "field_N GPU RETURN VALUE [TYPE [SCOPE]]"; the type by default unsigned long long. */
int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *values) {
    char call[64];
    int result = answer("fields", device->index, NULL, OK);
    for (int i = 0; result == OK && i < count; i++) {
        long long v[VALUES] = {0, 3, -1};
        snprintf(call, sizeof call, "field_%u", values[i].field);
        values[i].returned = answer(call, device->index, v, NOT_SUPPORTED);
        values[i].type = (int)v[1];
        values[i].value.ull = 0xdeadbeef; /* what a caller reads who does not look at the return code */
        if (v[2] >= 0 && (unsigned)v[2] != values[i].scope) values[i].returned = NOT_SUPPORTED;
        if (values[i].returned == OK) {
            if (v[1] == 0) values[i].value.d = (double)v[0]; else values[i].value.ull = (unsigned long long)v[0];
        }
    }
    return result;
}

/* "fabric GPU RETURN STATE STATUS HEALTH SUMMARY"; "fabric_v3 GPU 25": the driver knows only version 2. */
int nvmlDeviceGetGpuFabricInfoV(Device *device, Fabric *info) {
    long long v[VALUES] = {0};
    int third = info->version >> 24 == 3, result;
    if (third && (result = answer("fabric_v3", device->index, NULL, OK)) != OK) return result;
    result = answer("fabric", device->index, v, NOT_SUPPORTED);
    info->state = (unsigned char)v[0]; info->status = (int)v[1]; info->health = (unsigned)v[2];
    if (third) info->summary = (unsigned char)v[3];
    return result;
}
#endif
