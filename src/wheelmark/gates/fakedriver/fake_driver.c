/* A recording driver: the functions of libcuda.so.1 and libamdhip64.so that a launcher of precompiled kernels calls.
 *
 * It runs nothing. It loads real code objects as a driver would (ELF machine, architecture, kernel symbol, parameters,
 * limits), refuses what a driver would refuse, and writes each call as one JSON line, with the bytes of every
 * kernel argument. That is enough to check a launcher from end to end on a machine without a card, and it says
 * nothing about what a kernel computes.
 *
 * Build: cc -shared -fPIC -O1 -o fake_driver.so fake_driver.c
 *
 * Environment, read at each call:
 *   FAKE_DRIVER_LOG      file that calls are appended to (absent: not recorded)
 *   FAKE_DRIVER_DEVICES  number of devices (1)
 *   FAKE_DRIVER_ARCH     their architectures, separated by commas, the last for all that follow: 90, 100, gfx942 (90)
 *   FAKE_DRIVER_SHARED   bytes of shared memory a block may have (as the architecture has)
 *   FAKE_DRIVER_FAIL     FUNCTION:CODE[,FUNCTION:CODE...]: these calls answer CODE
 *   FAKE_DRIVER_JUNK     FUNCTION[,FUNCTION...]: these calls answer success and nonsense (null handles, wild numbers)
 *   FAKE_DRIVER_OLD      not empty: a driver without parameter records (before CUDA 12.4): cuFuncGetParamInfo answers 801
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "code_objects.h"

#define EXPORT __attribute__((visibility("default")))
#define MAX_DEVICES 64

enum { INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
       INVALID_CONTEXT = 201, NO_BINARY = 209, INVALID_HANDLE = 400, NOT_FOUND = 500, OUT_OF_RESOURCES = 701,
       NOT_SUPPORTED = 801 };

/* ---- what was asked for ---------------------------------------------------------------------------------------- */

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static int initialised;

static int listed(const char *variable, const char *function, int *code) {
    const char *at = getenv(variable);
    size_t length = strlen(function);
    while (at && *at) {
        const char *end = at + strcspn(at, ",");
        if ((size_t)(end - at) >= length && !strncmp(at, function, length)) {
            if (at + length == end) { *code = 0; return 1; }
            if (at[length] == ':') { *code = atoi(at + length + 1); return 1; }
        }
        at = *end ? end + 1 : end;
    }
    return 0;
}

static int number(const char *variable, int otherwise) {
    const char *text = getenv(variable);
    return text && *text ? atoi(text) : otherwise;
}

static int device_total(void) {
    int count = number("FAKE_DRIVER_DEVICES", 1);
    return count < 0 ? 0 : count > MAX_DEVICES ? MAX_DEVICES : count;
}

/* "90" or "gfx942" of one device. */
static void device_arch(int device, char *out, size_t size) {
    const char *at = getenv("FAKE_DRIVER_ARCH");
    if (!at || !*at) at = "90";
    for (; device > 0; --device) {
        const char *comma = strchr(at, ',');
        if (!comma) break;
        at = comma + 1;
    }
    snprintf(out, size, "%.*s", (int)strcspn(at, ","), at);
}

static int shared_limit(int device) {
    char arch[64];
    device_arch(device, arch, sizeof arch);
    int otherwise = 65536;                                     /* gfx90a, gfx942, gfx11 */
    if (!strcmp(arch, "gfx950")) otherwise = 163840;
    else if (!strcmp(arch, "80")) otherwise = 166912;
    else if (!strcmp(arch, "86") || !strcmp(arch, "89") || !strcmp(arch, "120")) otherwise = 101376;
    else if (strncmp(arch, "gfx", 3)) otherwise = 232448;      /* sm_90, sm_100, sm_103 */
    return number("FAKE_DRIVER_SHARED", otherwise);
}

/* ---- the record -------------------------------------------------------------------------------------------------- */

static void record(const char *line) {
    const char *path = getenv("FAKE_DRIVER_LOG");
    if (!path || !*path) return;
    pthread_mutex_lock(&log_mutex);
    FILE *file = fopen(path, "a");
    if (file) { fprintf(file, "%s\n", line); fclose(file); }
    pthread_mutex_unlock(&log_mutex);
}

/* Whether a call is to fail; records it either way. `rest` are further JSON members, beginning with a comma. */
static int begin(const char *function, const char *rest, int *code) {
    char line[1024];
    *code = 0;
    int fails = listed("FAKE_DRIVER_FAIL", function, code);
    if (!fails && !initialised && strcmp(function, "cuInit") && strcmp(function, "hipInit") &&
        strcmp(function, "cuDriverGetVersion") && strcmp(function, "hipRuntimeGetVersion")) {
        *code = NOT_INITIALIZED;
        fails = 1;
    }
    snprintf(line, sizeof line, "{\"call\":\"%s\",\"result\":%d%s}", function, fails ? *code : 0, rest);
    record(line);
    return fails;
}

static int junk(const char *function) { int code; return listed("FAKE_DRIVER_JUNK", function, &code); }

/* ---- loading ---------------------------------------------------------------------------------------------------- */

static int load(const char *call, void **module, const void *image, int hip, int device) {
    char rest[256], have[64], want[64] = "";
    const uint8_t *bytes = image;
    int code, elf = bytes && !memcmp(bytes, ELFMAG, SELFMAG) && bytes[EI_CLASS] == ELFCLASS64;
    device_arch(device, have, sizeof have);
    if (elf) object_arch(bytes, hip, want, sizeof want);
    snprintf(rest, sizeof rest, ",\"device\":%d,\"elf\":%s,\"object_arch\":\"%s\",\"bytes\":%zu", device, elf ? "true" : "false",
             want, elf ? elf_size(bytes) : 0);
    if (begin(call, rest, &code)) return code;
    if (junk(call)) { *module = NULL; return 0; }
    if (!elf) return INVALID_IMAGE;
    if (!*want || strcmp(want, have)) return NO_BINARY;
    struct module *made = calloc(1, sizeof *made);
    *made = (struct module){MODULE, bytes, elf_size(bytes), hip, 0, device};
    *module = made;
    return 0;
}

static int get_function(const char *call, void **function, struct module *module, const char *name) {
    char rest[640];
    int code;
    snprintf(rest, sizeof rest, ",\"entry\":\"%.500s\"", name);
    if (begin(call, rest, &code)) return code;
    if (junk(call)) { *function = NULL; return 0; }
    if (!module || module->magic != MODULE) return INVALID_HANDLE;
    struct function *made = calloc(1, sizeof *made);
    made->magic = FUNCTION;
    made->module = module;
    snprintf(made->name, sizeof made->name, "%s", name);
    char arch[64];
    device_arch(module->device, arch, sizeof arch);
    if (module->hip ? !read_hsaco_function(made) : !read_cubin_function(made, atoi(arch))) { free(made); return NOT_FOUND; }
    *function = made;
    return 0;
}

/* ---- launching --------------------------------------------------------------------------------------------------- */

static int launch(const char *call, struct function *function, const unsigned *grid, const unsigned *block, unsigned shared,
                  void *stream, void **arguments, int device, void *context) {
    size_t room = 4096 + MAX_PARAMETERS * 64, used;
    int code = 0;
    if (!function || function->magic != FUNCTION) { begin(call, "", &code); return code ? code : INVALID_HANDLE; }
    char *line = malloc(room);
    int fails = listed("FAKE_DRIVER_FAIL", call, &code);
    unsigned long threads = (unsigned long)block[0] * block[1] * block[2];
    int most = function->module->hip ? shared_limit(device) - function->static_shared
                                     : function->dynamic_shared ? function->dynamic_shared : 49152 - function->static_shared;
    if (!fails && (threads < 1 || threads > 1024 || (long)shared > most)) { fails = 1; code = threads < 1 || threads > 1024 ? INVALID_VALUE : OUT_OF_RESOURCES; }
    if (!fails && function->module->device != device) { fails = 1; code = INVALID_HANDLE; }
    used = (size_t)snprintf(line, room,
        "{\"call\":\"%s\",\"result\":%d,\"entry\":\"%.500s\",\"device\":%d,\"context\":%llu,\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],"
        "\"shared\":%u,\"stream\":%llu,\"parameters\":[", call, code, function->name, device, (unsigned long long)(uintptr_t)context,
        grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, (unsigned long long)(uintptr_t)stream);
    for (int i = 0; function->known && i < function->count; ++i) {
        const uint8_t *bytes = arguments[i];
        used += (size_t)snprintf(line + used, room - used, "%s\"", i ? "," : "");
        for (uint32_t b = 0; b < function->parameters[i].size && used + 8 < room; ++b)
            used += (size_t)snprintf(line + used, room - used, "%02x", bytes[b]);
        used += (size_t)snprintf(line + used, room - used, "\"");
    }
    snprintf(line + used, room - used, "]}");
    record(line);
    free(line);
    return fails ? code : 0;
}

/* ---- CUDA -------------------------------------------------------------------------------------------------------- */

static __thread void *current_context;                  /* contexts are their device plus this */
#define CONTEXT(device) ((void *)(uintptr_t)(0x1000 + (device)))
#define DEVICE_OF(context) ((int)((uintptr_t)(context) - 0x1000))

static int bad_device(int device) { return device < 0 || device >= device_total(); }

EXPORT int cuInit(unsigned flags) {
    int code;
    if (begin("cuInit", "", &code)) return code;
    if (flags) return INVALID_VALUE;
    if (device_total() == 0) return NO_DEVICE;
    initialised = 1;
    return 0;
}

EXPORT int cuDriverGetVersion(int *version) {
    int code;
    if (begin("cuDriverGetVersion", "", &code)) return code;
    *version = 13000;
    return 0;
}

EXPORT int cuDeviceGetCount(int *count) {
    int code;
    if (begin("cuDeviceGetCount", "", &code)) return code;
    *count = junk("cuDeviceGetCount") ? -7 : device_total();
    return 0;
}

EXPORT int cuDeviceGet(int *device, int ordinal) {
    int code;
    if (begin("cuDeviceGet", "", &code)) return code;
    if (bad_device(ordinal)) return INVALID_DEVICE;
    *device = ordinal;
    return 0;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    char arch[64], rest[64];
    int code;
    snprintf(rest, sizeof rest, ",\"attribute\":%d,\"device\":%d", attribute, device);
    if (begin("cuDeviceGetAttribute", rest, &code)) return code;
    if (bad_device(device)) return INVALID_DEVICE;
    if (junk("cuDeviceGetAttribute")) { *value = -2000000000; return 0; }
    device_arch(device, arch, sizeof arch);
    if (attribute == 75) *value = atoi(arch) / 10;        /* COMPUTE_CAPABILITY_MAJOR */
    else if (attribute == 76) *value = atoi(arch) % 10;   /* COMPUTE_CAPABILITY_MINOR */
    else if (attribute == 97) *value = shared_limit(device); /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    else return INVALID_VALUE;
    return 0;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
    char rest[64];
    int code;
    snprintf(rest, sizeof rest, ",\"device\":%d", device);
    if (begin("cuDevicePrimaryCtxRetain", rest, &code)) return code;
    if (bad_device(device)) return INVALID_DEVICE;
    *context = junk("cuDevicePrimaryCtxRetain") ? NULL : CONTEXT(device);
    return 0;
}

EXPORT int cuCtxGetCurrent(void **context) {
    int code;
    if (begin("cuCtxGetCurrent", "", &code)) return code;
    *context = current_context;
    return 0;
}

EXPORT int cuCtxSetCurrent(void *context) {
    char rest[64];
    int code;
    snprintf(rest, sizeof rest, ",\"context\":%llu", (unsigned long long)(uintptr_t)context);
    if (begin("cuCtxSetCurrent", rest, &code)) return code;
    if (context && bad_device(DEVICE_OF(context))) return INVALID_CONTEXT;
    current_context = context;
    return 0;
}

EXPORT int cuCtxGetDevice(int *device) {
    int code;
    if (begin("cuCtxGetDevice", "", &code)) return code;
    if (!current_context) return INVALID_CONTEXT;
    *device = DEVICE_OF(current_context);
    return 0;
}

EXPORT int cuModuleLoadData(void **module, const void *image) {
    if (!current_context) { int code; begin("cuModuleLoadData", ",\"refused\":\"no context\"", &code); return INVALID_CONTEXT; }
    return load("cuModuleLoadData", module, image, 0, DEVICE_OF(current_context));
}

EXPORT int cuModuleGetFunction(void **function, void *module, const char *name) {
    return get_function("cuModuleGetFunction", function, module, name);
}

EXPORT int cuFuncGetAttribute(int *value, int attribute, void *handle) {
    struct function *function = handle;
    int code;
    if (begin("cuFuncGetAttribute", "", &code)) return code;
    if (!function || function->magic != FUNCTION) return INVALID_HANDLE;
    if (attribute != 1) return INVALID_VALUE;             /* SHARED_SIZE_BYTES */
    *value = junk("cuFuncGetAttribute") ? -1 : function->static_shared;
    return 0;
}

EXPORT int cuFuncSetAttribute(void *handle, int attribute, int value) {
    struct function *function = handle;
    char rest[96];
    int code;
    snprintf(rest, sizeof rest, ",\"attribute\":%d,\"value\":%d", attribute, value);
    if (begin("cuFuncSetAttribute", rest, &code)) return code;
    if (!function || function->magic != FUNCTION) return INVALID_HANDLE;
    if (attribute != 8) return INVALID_VALUE;             /* MAX_DYNAMIC_SHARED_SIZE_BYTES */
    if (value < 0 || value + function->static_shared > shared_limit(function->module->device)) return INVALID_VALUE;
    function->dynamic_shared = value;
    return 0;
}

EXPORT int cuFuncGetParamInfo(void *handle, size_t index, size_t *offset, size_t *size) {
    struct function *function = handle;
    const char *old = getenv("FAKE_DRIVER_OLD");
    int code;
    if (begin("cuFuncGetParamInfo", "", &code)) return code;
    if (!function || function->magic != FUNCTION) return INVALID_HANDLE;
    if ((old && *old) || !function->known) return NOT_SUPPORTED;
    if (index >= (size_t)function->count) return INVALID_VALUE;
    *offset = function->parameters[index].offset;
    *size = function->parameters[index].size;
    return 0;
}

EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **arguments, void **extra) {
    const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    int code;
    if (!current_context) { begin("cuLaunchKernel", ",\"refused\":\"no context\"", &code); return INVALID_CONTEXT; }
    if (extra || !gx || !gy || !gz || gx > 0x7fffffff || gy > 65535 || gz > 65535) { begin("cuLaunchKernel", ",\"refused\":\"grid\"", &code); return INVALID_VALUE; }
    return launch("cuLaunchKernel", function, grid, block, shared, stream, arguments, DEVICE_OF(current_context), current_context);
}

/* ---- HIP --------------------------------------------------------------------------------------------------------- */

static __thread int current_device;

EXPORT int hipInit(unsigned flags) {
    int code;
    if (begin("hipInit", "", &code)) return code;
    if (flags) return INVALID_VALUE;
    if (device_total() == 0) return NO_DEVICE;
    initialised = 1;
    return 0;
}

EXPORT int hipRuntimeGetVersion(int *version) {
    int code;
    if (begin("hipRuntimeGetVersion", "", &code)) return code;
    *version = 60342131;
    return 0;
}

EXPORT int hipGetDeviceCount(int *count) {
    int code;
    if (begin("hipGetDeviceCount", "", &code)) return code;
    *count = junk("hipGetDeviceCount") ? -7 : device_total();
    return 0;
}

/* hipDeviceProp_tR0600: 1,472 bytes, gcnArchName at 1,160 (hip_runtime_api.h 6.x). */
EXPORT int hipGetDevicePropertiesR0600(void *properties, int device) {
    char arch[64], rest[64];
    int code;
    snprintf(rest, sizeof rest, ",\"device\":%d", device);
    if (begin("hipGetDevicePropertiesR0600", rest, &code)) return code;
    if (bad_device(device)) return INVALID_DEVICE;
    if (junk("hipGetDevicePropertiesR0600")) { memset(properties, 0xff, 1472); return 0; }
    memset(properties, 0, 1472);
    device_arch(device, arch, sizeof arch);
    snprintf((char *)properties + 1160, 256, "%s%s", arch, !strcmp(arch, "gfx90a") || !strcmp(arch, "gfx942") ? ":sramecc+:xnack-" : "");
    return 0;
}

EXPORT int hipDeviceGetAttribute(int *value, int attribute, int device) {
    char rest[64];
    int code;
    snprintf(rest, sizeof rest, ",\"attribute\":%d,\"device\":%d", attribute, device);
    if (begin("hipDeviceGetAttribute", rest, &code)) return code;
    if (bad_device(device)) return INVALID_DEVICE;
    if (attribute != 74) return INVALID_VALUE;            /* hipDeviceAttributeMaxSharedMemoryPerBlock */
    *value = junk("hipDeviceGetAttribute") ? -2000000000 : shared_limit(device);
    return 0;
}

EXPORT int hipGetDevice(int *device) {
    int code;
    if (begin("hipGetDevice", "", &code)) return code;
    *device = current_device;
    return 0;
}

EXPORT int hipSetDevice(int device) {
    char rest[64];
    int code;
    snprintf(rest, sizeof rest, ",\"device\":%d", device);
    if (begin("hipSetDevice", rest, &code)) return code;
    if (bad_device(device)) return INVALID_DEVICE;
    current_device = device;
    return 0;
}

EXPORT int hipModuleLoadData(void **module, const void *image) { return load("hipModuleLoadData", module, image, 1, current_device); }

EXPORT int hipModuleGetFunction(void **function, void *module, const char *name) {
    return get_function("hipModuleGetFunction", function, module, name);
}

EXPORT int hipFuncGetAttribute(int *value, int attribute, void *handle) {
    struct function *function = handle;
    int code;
    if (begin("hipFuncGetAttribute", "", &code)) return code;
    if (!function || function->magic != FUNCTION) return INVALID_HANDLE;
    if (attribute != 1) return INVALID_VALUE;             /* HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES */
    *value = junk("hipFuncGetAttribute") ? -1 : function->static_shared;
    return 0;
}

EXPORT int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                 unsigned shared, void *stream, void **arguments, void **extra) {
    const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    int code;
    if (extra || !gx || !gy || !gz || (uint64_t)gx * bx > UINT32_MAX) { begin("hipModuleLaunchKernel", ",\"refused\":\"grid\"", &code); return INVALID_VALUE; }
    return launch("hipModuleLaunchKernel", function, grid, block, shared, stream, arguments, current_device, NULL);
}
