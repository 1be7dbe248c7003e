/* Calls at the C interface of libpagedkv as they were recorded, made again. Says the first status
 * that is another one.
 *
 *   cc -g -I include THIS.c -ldl -rdynamic -o reproducer && PAGEDKV_LIBRARY=build/src/libpagedkv.so
 * ./reproducer [-v]
 *
 * -v prints each call before it is made. What the library reads is copied to memory of just that
 * size, what it writes has room of just that size, each at the place within 64 bytes where it was.
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <pagedkv/pagedkv.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Few programs need all of what follows. clang minds inline functions, too. */
#pragma GCC diagnostic ignored "-Wunused-function"
/* A brief program lacks calls that read a list. */
#pragma GCC diagnostic ignored "-Wunused-const-variable"

static struct {
#define MEMBER(name) __typeof__(pkv_##name)* name;
  FUNCTIONS(MEMBER)
} lib;

static void calls(void);

static void*
    h[HANDLES + 1]; /* what the library handed out, in the order of the calls that asked for it */
static pkv_status got;
static const char* function;
static unsigned long long call_count;
static int verbose;

static void stop(const char* sentence) {
  fprintf(stderr, "call %llu, pkv_%s: %s\n", call_count, function, sentence);
  _exit(1);
}

/* ---- Memory: refused from the k-th allocation of a call on, if that was recorded */

static unsigned long long countdown;
static void (*throw_bad_alloc)(void);

static inline void refuse(unsigned long long k) { countdown = k; }

static inline int refused(void) { return countdown != 0 && (countdown == 1 || (countdown--, 0)); }

static void* aligned(size_t size, size_t alignment) {
  void* memory = NULL;
  return posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment,
                        size > 0 ? size : 1) == 0
             ? memory
             : NULL;
}

typedef struct budget {
  pkv_allocator allocator;
  uint64_t left;
} budget;

static void* hook_alloc(void* user, size_t size, size_t alignment) {
  budget* own = user;
  if (refused() || size > own->left) return NULL;
  void* memory = aligned(size, alignment);
  if (memory != NULL) own->left -= size;
  return memory != NULL ? memset(memory, 0xFF, size) : NULL;
}

static void hook_free(void* user, void* memory, size_t size, size_t alignment) {
  (void)alignment;
  ((budget*)user)->left += size;
  free(memory);
}

static inline const pkv_allocator* allocator(size_t i, uint64_t bytes) {
  static budget budgets[64];
  if (i >= 64) stop("too many allocators");
  budget* own = &budgets[i];
  if (own->allocator.alloc == NULL) *own = (budget){{hook_alloc, hook_free, own}, bytes};
  return &own->allocator;
}

#ifdef REFUSES_NEW
/* C++'s operator new, which the library takes from this program (-rdynamic), by the names of 64-bit
 * systems: plain and aligned, each throwing and not. A C function has the tables by which an
 * exception passes it. */
static void* new_or_throw(size_t size, size_t alignment) {
  void* memory = refused() ? NULL : aligned(size, alignment);
  if (memory == NULL) throw_bad_alloc();
  return memory;
}
void* _Znwm(size_t size) { return new_or_throw(size, 16); }
void* _Znam(size_t size) { return new_or_throw(size, 16); }
void* _ZnwmSt11align_val_t(size_t size, size_t alignment) { return new_or_throw(size, alignment); }
void* _ZnamSt11align_val_t(size_t size, size_t alignment) { return new_or_throw(size, alignment); }
void* _ZnwmRKSt9nothrow_t(size_t size) { return refused() ? NULL : aligned(size, 16); }
void* _ZnamRKSt9nothrow_t(size_t size) { return refused() ? NULL : aligned(size, 16); }
void* _ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment) {
  return refused() ? NULL : aligned(size, alignment);
}
void* _ZnamSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment) {
  return refused() ? NULL : aligned(size, alignment);
}
void _ZdlPv(void* memory) { free(memory); }
void _ZdaPv(void* memory) { free(memory); }
void _ZdlPvm(void* memory) { free(memory); }
void _ZdaPvm(void* memory) { free(memory); }
void _ZdlPvSt11align_val_t(void* memory) { free(memory); }
void _ZdaPvSt11align_val_t(void* memory) { free(memory); }
void _ZdlPvmSt11align_val_t(void* memory) { free(memory); }
void _ZdaPvmSt11align_val_t(void* memory) { free(memory); }
#endif

/* ---- Arguments, which live until the call has returned */

static void* arguments[4096];
static size_t argument_count;

/* Ends where a block of memory ends, so that a tool sees what is read or written beyond. */
static inline void* room(size_t size, size_t offset) {
  unsigned char* memory = aligned(offset + size, 64);
  if (memory == NULL || argument_count == sizeof arguments / sizeof *arguments)
    stop("no memory for its arguments");
  arguments[argument_count++] = memory;
  return (unsigned char*)memset(memory, 0xAB, offset + size) + offset;
}

static inline void* in(const void* list, size_t given, size_t size, size_t offset) {
  unsigned char* memory = room(size, offset);
  for (size_t at = 0; at < size; at += given)
    memcpy(memory + at, list, size - at < given ? size - at : given);
  return memory;
}

/* A struct whose struct_size says something else than its size: cut off, or with zeros behind. */
static inline void* copied(const void* value, size_t size, size_t struct_size) {
  size_t given = struct_size < 4 ? 4 : struct_size < 65536 ? struct_size : 65536;
  return memcpy(memset(room(given, 0), 0, given), value, given < size ? given : size);
}

static inline void* sized(uint32_t struct_size) {
  return memcpy(room(struct_size < 4       ? 4
                     : struct_size < 65536 ? struct_size
                                           : 65536,
                     0),
                &struct_size, 4);
}

static inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline void ignore(void* user, pkv_log_level level, const char* message) {
  (void)user, (void)level, (void)message;
}

static inline void run_alone(void* user, size_t n,
                             void (*task)(void* context, size_t i, uint32_t worker),
                             void* context) {
  (void)user;
  for (size_t i = 0; i < n; i++) task(context, i, 0);
}

/* ---- Calls */

static void call(const char* name) {
  function = name;
  call_count++;
  if (verbose) fprintf(stderr, "call %llu, pkv_%s\n", call_count, name);
}

static void done(void) {
  countdown = 0;
  while (argument_count > 0) free(arguments[--argument_count]);
}

static inline void expect(pkv_status recorded) {
  done();
  if (got == recorded) return;
  char sentence[512];
  snprintf(sentence, sizeof sentence, "%s, recorded was %s; the last error is \"%s\"",
           lib.status_name(got), lib.status_name(recorded), lib.last_error());
  stop(sentence);
}

int main(int argc, char** argv) {
  verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
  const char* path = getenv("PAGEDKV_LIBRARY");
  void* library =
      dlopen(path != NULL && *path != '\0' ? path : "libpagedkv.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "cannot open the library (PAGEDKV_LIBRARY names it): %s\n", dlerror());
    return 2;
  }
#define RESOLVE(name)                                 \
  {                                                   \
    void* symbol = dlsym(library, "pkv_" #name);      \
    function = #name;                                 \
    if (symbol == NULL) stop("the library has none"); \
    memcpy(&lib.name, &symbol, sizeof symbol);        \
  }
  FUNCTIONS(RESOLVE)
  void* symbol = dlsym(library, "_ZSt17__throw_bad_allocv");
  memcpy(&throw_bad_alloc, &symbol, sizeof symbol);
  calls();
  printf("%llu calls, all with the recorded statuses\n", call_count);
  return 0;
}
