#ifndef RUSHLIGHT_H
#define RUSHLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Rushlight runs PyTorch models that were exported to ExecuTorch's .pte files, and compiles them.
//
//     rl_module *module;
//     rl_status *status = rl_module_load("model.pte", NULL, &module);
//     if (status != NULL) {
//       fprintf(stderr, "%s\n", rl_status_text(status));
//       rl_status_free(status);
//       return 1;
//     }
//     const int64_t sizes[] = {1, 3, 224, 224};
//     rl_value input = rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 4, image, sizeof image);
//     const rl_value *outputs;
//     status = rl_module_run(module, "forward", &input, 1, NULL, &outputs, NULL);
//     ...
//     const float *logits = outputs[0].as.tensor.data;
//     ...
//     rl_module_free(module);
//
// These rules hold for all functions:
//
// Errors. A function that can fail returns an `rl_status *`: NULL on success, else an object that
// says what failed and where, what was expected, what was given, and what to do. After an error,
// variables for results are unchanged. NULL in place of a required argument is an error, never a
// crash. Functions that only look something up return 0 or NULL for it.
//
// Ownership. Objects (`rl_module`, `rl_status` and the other types with hidden fields) belong to
// the caller who made them, and are freed once, by the function `..._free` of their type. Arguments
// are borrowed for the call, unless the comment says otherwise. Returned pointers are borrowed, and
// the comment says how long they are valid.
//
// Threads. There is no global state. One thread at a time uses an object, unless its type says
// otherwise. Any thread may call functions without an object at any time.
//
// Growth. Structures that begin with `struct_size` may get more fields at their end: set it to the
// `sizeof` of your compiler, as the macros `RL_..._INIT` do. Programs that were built with an older
// header run with a newer library of the same major version. There may be new codes and kinds:
// treat unknown ones as errors.
//
// Text is UTF-8. Paths are UTF-8 on Windows, and the bytes of the file system elsewhere.
//
// Functions whose names begin with `rl_compile`, `rl_program` and `rl_llm` may be missing in builds
// for small devices.

#define RL_VERSION_MAJOR 0
#define RL_VERSION_MINOR 1
#define RL_VERSION_PATCH 0

// Initializers: everything by default. `rl_load_options options = RL_LOAD_OPTIONS_INIT;`
#define RL_LOAD_OPTIONS_INIT \
  { sizeof(rl_load_options), 0, 0, 0, NULL, NULL, 0, 0, NULL, 0, NULL, NULL, 0, NULL, 0 }
#define RL_RUN_OPTIONS_INIT { sizeof(rl_run_options), NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL }
#define RL_COMPILE_OPTIONS_INIT \
  { sizeof(rl_compile_options), NULL, 0, 0, NULL, 0, NULL, NULL, NULL, NULL, 0 }
#define RL_LLM_GENERATE_OPTIONS_INIT \
  { sizeof(rl_llm_generate_options), 0, 0.8f, 0.95f, 40, 0, NULL, 0, NULL, NULL, NULL, NULL, 0, NULL, NULL }
#define RL_OPERATOR_INIT { sizeof(rl_operator), NULL, 0, 0, NULL, NULL }
#define RL_BACKEND_INIT \
  { sizeof(rl_backend), NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL }
#define RL_STATE_FUNCTIONS_INIT \
  { sizeof(rl_state_functions), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }
#define RL_DEVICE_FUNCTIONS_INIT \
  { sizeof(rl_device_functions), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }
#define RL_DELEGATE_EVENT_INIT { sizeof(rl_delegate_event), {NULL, 0}, {NULL, 0}, -1, 0, 0, 0 }
#define RL_DEVICE_LIMITS_INIT { sizeof(rl_device_limits), {NULL, 0}, 0, 0 }
#define RL_VALUE_INFO_INIT \
  { sizeof(rl_value_info), NULL, {0, {{NULL, 0, NULL, NULL, 0, 0}}}, NULL, NULL, false, false }
#define RL_LLM_USAGE_INIT { sizeof(rl_llm_usage), 0, 0, 0, 0, 0 }

// Of dlpack.h (dmlc/dlpack), which a program that exchanges tensors includes too.
struct DLManagedTensorVersioned;

// Codes of errors. The numbers are ExecuTorch's for the same conditions.
enum rl_code
#ifdef __cplusplus
  : uint32_t
#endif // __cplusplus
 {
  // Success: the code of a status that is NULL.
  RL_OK = 0,
  // A defect of the library.
  RL_INTERNAL = 1,
  // The object cannot be used now: another call uses it, or the call was interrupted.
  RL_INVALID_STATE = 2,
  // The library, or this build of it, does not support this.
  RL_NOT_SUPPORTED = 16,
  RL_NOT_IMPLEMENTED = 17,
  // An argument is wrong: NULL, of a wrong size or shape, or outside the range that the program was
  // exported for.
  RL_INVALID_ARGUMENT = 18,
  // A value has a wrong kind, or a tensor a wrong element type.
  RL_INVALID_TYPE = 19,
  // The program needs operators that are neither built in nor registered; see
  // `rl_status_missing_operator`.
  RL_OPERATOR_MISSING = 20,
  // There is no file, method, backend or option of that name.
  RL_NOT_FOUND = 32,
  // There is not enough memory, or the memory limit is reached.
  RL_MEMORY_ALLOCATION_FAILED = 33,
  // A file cannot be read or written; see `rl_status_os_error`.
  RL_ACCESS_FAILED = 34,
  // The file is damaged, or of another kind.
  RL_INVALID_PROGRAM = 35,
  // A data file (.ptd) is damaged, or does not fit the program.
  RL_INVALID_EXTERNAL_DATA = 36,
  // A limit is reached: the time limit, or a language model's context.
  RL_OUT_OF_RESOURCES = 37,
  // This version of a backend cannot run the payload.
  RL_DELEGATE_INVALID_COMPATIBILITY = 48,
  RL_DELEGATE_MEMORY_ALLOCATION_FAILED = 49,
  RL_DELEGATE_INVALID_HANDLE = 50,
};
#ifndef __cplusplus
typedef uint32_t rl_code;
#endif // __cplusplus

// Element types of tensors. The numbers are those of PyTorch and of `.pte` files. Types of PyTorch
// that are not listed have PyTorch's numbers, too.
enum rl_dtype
#ifdef __cplusplus
  : uint32_t
#endif // __cplusplus
 {
  RL_DTYPE_UINT8 = 0,
  RL_DTYPE_INT8 = 1,
  RL_DTYPE_INT16 = 2,
  RL_DTYPE_INT32 = 3,
  RL_DTYPE_INT64 = 4,
  RL_DTYPE_FLOAT16 = 5,
  RL_DTYPE_FLOAT32 = 6,
  RL_DTYPE_FLOAT64 = 7,
  RL_DTYPE_COMPLEX32 = 8,
  RL_DTYPE_COMPLEX64 = 9,
  RL_DTYPE_COMPLEX128 = 10,
  RL_DTYPE_BOOL = 11,
  RL_DTYPE_BFLOAT16 = 15,
  RL_DTYPE_UINT16 = 27,
  RL_DTYPE_UINT32 = 28,
  RL_DTYPE_UINT64 = 29,
};
#ifndef __cplusplus
typedef uint32_t rl_dtype;
#endif // __cplusplus

// Kinds of values. Only operators have lists as arguments: methods neither take nor return lists.
enum rl_kind
#ifdef __cplusplus
  : uint32_t
#endif // __cplusplus
 {
  // Python's `None`; nothing in `as`.
  RL_KIND_NONE = 0,
  // `as.tensor`.
  RL_KIND_TENSOR = 1,
  // `as.integer`.
  RL_KIND_INT = 2,
  // `as.real`.
  RL_KIND_DOUBLE = 3,
  // `as.boolean`.
  RL_KIND_BOOL = 4,
  // `as.string`.
  RL_KIND_STRING = 5,
  // `as.list` of `int64_t`.
  RL_KIND_INT_LIST = 6,
  // `as.list` of `double`.
  RL_KIND_DOUBLE_LIST = 7,
  // `as.list` of `uint8_t`, each 0 or 1.
  RL_KIND_BOOL_LIST = 8,
  // `as.list` of `rl_value`, each a tensor or none.
  RL_KIND_TENSOR_LIST = 9,
};
#ifndef __cplusplus
typedef uint32_t rl_kind;
#endif // __cplusplus

// Ways to load a file into memory.
enum rl_load_mode
#ifdef __cplusplus
  : uint32_t
#endif // __cplusplus
 {
  // Mapped: pages are read at their first use, and shared between processes. The file must not be
  // changed or shortened while it is loaded.
  RL_LOAD_MMAP = 0,
  // Read whole into memory.
  RL_LOAD_READ = 1,
  // Mapped and locked into memory. Fails where the system does not allow it.
  RL_LOAD_MMAP_LOCKED = 2,
  // Mapped and, where the system allows it, locked into memory.
  RL_LOAD_MMAP_LOCKED_IF_ALLOWED = 3,
};
#ifndef __cplusplus
typedef uint32_t rl_load_mode;
#endif // __cplusplus

// Kind of an event.
enum rl_event_kind
#ifdef __cplusplus
  : uint32_t
#endif // __cplusplus
 {
  // The whole execution of a method. `name` is the method's.
  RL_EVENT_EXECUTE = 0,
  // An operator. `name` is its full name.
  RL_EVENT_OPERATOR = 1,
  // A call of a delegate; `name` is its backend.
  RL_EVENT_DELEGATE = 2,
  RL_EVENT_MOVE = 3,
  RL_EVENT_JUMP = 4,
  RL_EVENT_FREE = 5,
  // A copy between host and device.
  RL_EVENT_COPY = 6,
};
#ifndef __cplusplus
typedef uint32_t rl_event_kind;
#endif // __cplusplus

// The kind of report about an event of a delegate.
enum rl_phase
#ifdef __cplusplus
  : uint32_t
#endif // __cplusplus
 {
  RL_PHASE_BEGIN = 0,
  RL_PHASE_END = 1,
  // A whole event, timed by the clock of a device.
  RL_PHASE_TIMED = 2,
};
#ifndef __cplusplus
typedef uint32_t rl_phase;
#endif // __cplusplus

// Reason why an answer ended.
enum rl_llm_finish
#ifdef __cplusplus
  : uint32_t
#endif // __cplusplus
 {
  // The model ended it, or one of the stop texts was generated.
  RL_LLM_FINISH_STOP = 0,
  // It has the requested number of tokens, or the context is full.
  RL_LLM_FINISH_LENGTH = 1,
  // The callback or the interrupt ended it.
  RL_LLM_FINISH_CANCELLED = 2,
};
#ifndef __cplusplus
typedef uint32_t rl_llm_finish;
#endif // __cplusplus

// The arguments of one call of a delegate. They live until the function that gets them returns, and
// belong to its thread.
typedef struct rl_delegate_context rl_delegate_context;

// Arguments of `rl_backend.init`. They live until that function returns.
typedef struct rl_init_context rl_init_context;

// A flag that ends calls early. Threads: any number of them may set and clear it while others run
// calls with it; setting it is safe in a signal handler.
typedef struct rl_interrupt rl_interrupt;

// The arguments of one call of an operator, by their position in its schema. They live until the
// kernel returns, and belong to the kernel's thread.
typedef struct rl_kernel_context rl_kernel_context;

// A language model with its tokenizer. Threads: as an `rl_module`.
typedef struct rl_llm rl_llm;

// One conversation: the tokens so far, and their KV cache. Threads: as an `rl_module`.
typedef struct rl_llm_session rl_llm_session;

// Metadata of a method. It is independent of the module that it came from. Threads: it never
// changes, so any number of threads may read it.
typedef struct rl_meta rl_meta;

// A program whose methods can be run. Methods are loaded at their first use, and keep their state
// between calls.
//
// Threads: one thread at a time uses a module. It may be another thread at each call. A call during
// another call, from another thread or from a callback, fails with `RL_INVALID_STATE` and changes
// nothing. To use several threads at once, load a module for each: the modules share the mapped
// file.
typedef struct rl_module rl_module;

// A compiled program. Threads: it never changes, so any number of threads may use it.
typedef struct rl_program rl_program;

// Operators and backends of the caller's, for `rl_module_load`. Threads: any number of threads may
// use a registry at once.
typedef struct rl_registry rl_registry;

// State of one user of a module, such as a KV cache. Code and weights stay in the module. Threads:
// as a module.
typedef struct rl_session rl_session;

// The error of a call: what failed and where, what was expected, what was given, and what to do.
//
// Functions that can fail return a status, which is NULL on success. The caller frees it with
// `rl_status_free`. Threads: a status never changes, so any number of threads may read it.
typedef struct rl_status rl_status;

// A tensor: a view of memory that it does not own.
typedef struct rl_tensor {
  // The first element; any pointer if there are no elements. The memory may be constant if the
  // library only reads it, as with an input.
  void *data;
  // Bytes from `data` to the end of the last element. For a row-major tensor, exactly the bytes of
  // its sizes; else at least the bytes that its strides reach.
  size_t nbytes;
  // `rank` sizes, from the outermost dimension.
  const int64_t *sizes;
  // `rank` distances between neighbours, in elements and not negative. NULL if the tensor is
  // row-major.
  const int64_t *strides;
  // Number of dimensions, at most 16.
  size_t rank;
  // An `rl_dtype`.
  uint32_t dtype;
} rl_tensor;

// UTF-8 text with its length in bytes, without a terminating NUL.
typedef struct rl_string {
  const char *data;
  size_t size;
} rl_string;

// Elements of the type that the value's kind selects.
typedef struct rl_list {
  const void *data;
  // Number of elements.
  size_t size;
} rl_list;

// Payload of a value, by its kind.
typedef union rl_value_as {
  struct rl_tensor tensor;
  int64_t integer;
  double real;
  // 0 or 1.
  uint8_t boolean;
  struct rl_string string;
  struct rl_list list;
} rl_value_as;

// A value: an input or output of a method, or an argument of an operator. It owns no memory.
typedef struct rl_value {
  // An `rl_kind`.
  uint32_t kind;
  union rl_value_as as;
} rl_value;

// A file of weights that a program does not hold (`.ptd`): a path, or bytes, which are copied.
typedef struct rl_data {
  // The path, or NULL for bytes.
  const char *path;
  const void *bytes;
  size_t size;
} rl_data;

// An option of a backend.
typedef struct rl_backend_option {
  // The backend's name, such as `cpu`.
  const char *backend;
  // The option's name.
  const char *name;
  // A bool, an int or a string.
  struct rl_value value;
} rl_backend_option;

// An option by its name, with the value as text: a number, `true` or `false`, or a text. A list may
// be given by several options of one name.
typedef struct rl_option {
  const char *name;
  // NULL: the default.
  const char *value;
} rl_option;

// Options of loading a program. `RL_LOAD_OPTIONS_INIT` has the defaults, which are all zero.
typedef struct rl_load_options {
  // `sizeof(rl_load_options)`.
  size_t struct_size;
  // An `rl_load_mode`.
  uint32_t mode;
  // 1: all methods use one set of planned buffers, sized for the largest, and share the state in
  // planned memory.
  uint32_t share_memory;
  // Number of threads of a call, the caller's included. 0: the number that the machine runs at
  // once.
  size_t threads;
  // The backend that a portable program is lowered to when its first method is loaded: `auto`
  // (NULL), `off`, or a backend with its options, such as `cpu:precision=bf16`.
  const char *lower;
  // A folder of the user's own that keeps compiled programs for later loads. NULL: that of the
  // environment variable `RUSHLIGHT_CACHE`, or none. Empty: none.
  const char *cache;
  // Maximum bytes of memory of one method. 0: no limit.
  uint64_t memory_limit;
  // Maximum duration of a call in microseconds. A call ends with `RL_OUT_OF_RESOURCES` at most one
  // step later. 0: no limit.
  uint64_t time_limit;
  // `num_data` files of weights.
  const struct rl_data *data;
  size_t num_data;
  // Operators and backends besides the built-in ones. May be NULL.
  const struct rl_registry *registry;
  // `num_backend_options` options of backends.
  const struct rl_backend_option *backend_options;
  size_t num_backend_options;
  // `num_named` further options by name: those of the fields above, which they replace, with times
  // and sizes such as `500ms` and `64MiB`.
  const struct rl_option *named;
  size_t num_named;
} rl_load_options;

// Called when borrowed memory is not used any more, on any thread.
typedef void (*rl_release_fn)(void *user_data);

// The beginning or the end of an action in a call. Events nest.
typedef struct rl_event {
  // An `rl_event_kind`.
  uint32_t kind;
  // 1 at the beginning, 0 at the end.
  uint32_t begins;
  // Index of the instruction.
  size_t instruction;
  // Lives until the callback returns. Empty for an action without a name.
  struct rl_string name;
} rl_event;

// Receives the events of a call, on its thread. It must not throw exceptions or jump out of the
// call.
typedef void (*rl_event_fn)(const struct rl_event *event, void *user_data);

// Something that a delegate does in a call: a step, a kernel of a device, a wait.
// `RL_DELEGATE_EVENT_INIT` has the defaults.
typedef struct rl_delegate_event {
  // `sizeof(rl_delegate_event)`.
  size_t struct_size;
  // The kind of step, the kernel or the wait. Required.
  struct rl_string name;
  // The value of the graph that the step computes; empty if it is not known.
  struct rl_string value;
  // Index of the step in the payload; negative for something else.
  int64_t step;
  // 1 if `flops` and `bytes` are known, else 0.
  uint32_t has_cost;
  // Additions and multiplications, counted by the definition of the operator.
  double flops;
  // Bytes of the tensors that are read and written, each counted once.
  double bytes;
} rl_delegate_event;

// Receives an event of a delegate and its `rl_phase`, on the thread of the call. `start` and `end`
// are nanoseconds of the device's clock for `RL_PHASE_TIMED`, else 0. It must not throw exceptions
// or jump out of the call.
typedef void (*rl_delegate_event_fn)(const struct rl_delegate_event *event,
                                     uint32_t phase,
                                     uint64_t start,
                                     uint64_t end,
                                     void *user_data);

// Options of a call. `RL_RUN_OPTIONS_INIT` has the defaults, which are all zero.
typedef struct rl_run_options {
  // `sizeof(rl_run_options)`.
  size_t struct_size;
  // The names of the inputs, one for each. With names, inputs may come in any order, and inputs
  // that the export fixed may be left out. NULL: inputs come in the method's order.
  const char *const *input_names;
  // Memory for outputs, by position. The data of an output is copied, row-major, to the tensor at
  // its position. This tensor's `dtype` must be the output's, and its `nbytes` at least the
  // output's bytes. The call sets its `nbytes` and its sizes, and does not read its `sizes`. The
  // memory must not overlap another output, or an input that the method returns as it is. Values of
  // the kind none are left as they are.
  struct rl_value *outputs;
  size_t num_outputs;
  // The state to use in place of the module's own. May be NULL.
  struct rl_session *session;
  // Ends the call early. May be NULL.
  const struct rl_interrupt *interrupt;
  // Receives events; `event_data` is passed to it. May be NULL.
  rl_event_fn on_event;
  void *event_data;
  // Receives the events of delegates, between the beginning and the end of their
  // `RL_EVENT_DELEGATE`; `event_data` is passed to it. May be NULL.
  rl_delegate_event_fn on_delegate_event;
} rl_run_options;

// Receives bytes, which live until it returns.
typedef void (*rl_write_fn)(const void *data, size_t size, void *write_data);

// The device of a backend, with which profiles compare the times of steps.
typedef struct rl_device_limits {
  // `sizeof(rl_device_limits)`.
  size_t struct_size;
  // The device and its settings; empty if the backend does not tell. It lives until the next call
  // of `rl_module_limits`.
  struct rl_string device;
  // f32 additions and multiplications per second.
  double flop_rate;
  // Bytes read from memory per second.
  double byte_rate;
} rl_device_limits;

// The sizes that a dimension of an input may have.
typedef struct rl_size_range {
  // The smallest size. If it is 1, empty tensors are accepted too.
  uint64_t min;
  // The largest size.
  uint64_t max;
  // The size minus `offset` is a multiple of `unit`.
  uint64_t unit;
  uint64_t offset;
  // The expression of other inputs' sizes that the size must equal, or NULL.
  const char *expression;
} rl_size_range;

// An input, output or attribute as the program declares it. Its pointers are valid as long as the
// `rl_meta` lives.
typedef struct rl_value_info {
  // `sizeof(rl_value_info)`, set by the caller.
  size_t struct_size;
  // Its name in the exported function; for an attribute, its name in the module. NULL if the
  // program records none.
  const char *name;
  // For a tensor, its element type and sizes without data. Dynamic sizes are upper bounds, and
  // `nbytes` is the size in bytes at these. For other kinds, the value that the export fixed: an
  // input must have this value.
  struct rl_value value;
  // For a tensor, its `rank` dimensions in memory order, from the outermost; else NULL.
  const uint8_t *dim_order;
  // For a dynamic input of a program of Rushlight's compiler, the range of each dimension; else
  // NULL. ExecuTorch's programs have only upper bounds.
  const struct rl_size_range *ranges;
  // True if sizes may change from call to call.
  bool is_dynamic;
  // True if the program planned memory for the tensor. Such an input is copied there; an input
  // without planned memory is read in place.
  bool is_memory_planned;
} rl_value_info;

// Computes an operator: reads its arguments and writes its outputs. Returns NULL, or a status that
// becomes that of the call.
//
// The thread that runs or loads the method calls it, never twice at once for one module. It must
// not throw exceptions or jump out of the call, and cannot use the module that calls it.
typedef struct rl_status *(*rl_kernel_fn)(struct rl_kernel_context *context, void *user_data);

// An operator of the caller's.
typedef struct rl_operator {
  // `sizeof(rl_operator)`.
  size_t struct_size;
  // Namespace, name and overload of the out variant, which programs call. For
  // `example::twice(Tensor x) -> Tensor` it is `example::twice.out`, with the arguments `x` and
  // `out`.
  const char *name;
  // Number of arguments, outputs included; at most 32.
  uint32_t num_arguments;
  // Number of outputs, which are the last arguments. 0 counts as 1.
  uint32_t num_outputs;
  // The function that computes the operator.
  rl_kernel_fn kernel;
  // Passed to the kernel. It must live as long as modules that were loaded with the registry.
  // Several threads use it at once if they use several of these modules at once.
  void *user_data;
} rl_operator;

// Makes a delegate from a payload when a method is loaded, and returns the number of its outputs.
// Like the other functions of a backend, it must not throw exceptions or jump out of the call, and
// cannot use the module that calls it.
typedef struct rl_status *(*rl_init_fn)(const struct rl_init_context *context,
                                        void *user_data,
                                        void **delegate,
                                        size_t *num_outputs);

// Reads the inputs of a call and writes its outputs. For a backend with a device, it submits the
// call.
typedef struct rl_status *(*rl_execute_fn)(void *delegate,
                                           struct rl_delegate_context *context,
                                           void *user_data);

// Frees a delegate, on any thread.
typedef void (*rl_destroy_fn)(void *delegate, void *user_data);

// An option that a backend declares.
typedef struct rl_option_spec {
  const char *name;
  // The value if none is set: a bool, an int or a string. Its kind is that of the option.
  struct rl_value default_value;
  // One line of documentation.
  const char *about;
  // The strings that the option takes; any string if there are none.
  const char *const *choices;
  size_t num_choices;
  // 1 if the option cannot change after a method is loaded, else 0.
  uint32_t only_at_load;
} rl_option_spec;

// Changes an option that the backend declares, after the method is loaded. The kind of the value is
// right.
typedef struct rl_status *(*rl_set_option_fn)(void *delegate,
                                              const char *name,
                                              const struct rl_value *value,
                                              void *user_data);

// Measures the peak rates of a device, with which profiles compare steps: f32 additions and
// multiplications per second, and bytes read from memory per second. Returns false if it cannot
// measure them.
typedef bool (*rl_limits_fn)(void *user_data, double *flop_rate, double *byte_rate);

// A state of a delegate, which outlives a call and belongs to one session.
typedef struct rl_state_info {
  // Delegates of one backend with the same key, in any method of a program, share the state. It
  // lives until the function returns.
  const char *key;
  // Maximum bytes of the state, for memory limits. Delegates of one backend with the same key
  // declare the same.
  size_t bytes;
} rl_state_info;

// Describes state `index` of a delegate when the method is loaded. Returns false after the last.
typedef bool (*rl_state_describe_fn)(void *delegate,
                                     size_t index,
                                     void *user_data,
                                     struct rl_state_info *info);

// Makes state `index` for one session, with its first content.
typedef struct rl_status *(*rl_state_create_fn)(void *delegate,
                                                size_t index,
                                                void *user_data,
                                                void **state);

// Frees a state, on any thread. It may be called after `rl_backend.destroy` has freed the delegate
// that made the state.
typedef void (*rl_state_destroy_fn)(void *state, void *user_data);

// Resets a state to its first content.
typedef struct rl_status *(*rl_state_clear_fn)(void *state, void *user_data);

// Forgets everything from position `length` on, in a state that grows by positions, such as a KV
// cache.
typedef struct rl_status *(*rl_state_rewind_fn)(void *state, size_t length, void *user_data);

// Makes a copy of a state that changes independently.
typedef struct rl_status *(*rl_state_fork_fn)(void *state, void *user_data, void **copy);

// Writes a state by any number of calls of `write`, to which `write_data` is passed.
typedef struct rl_status *(*rl_state_save_fn)(void *state,
                                              rl_write_fn write,
                                              void *write_data,
                                              void *user_data);

// Sets a state to a saved one. The bytes are untrusted. After an error, the state is as before.
typedef struct rl_status *(*rl_state_restore_fn)(void *state,
                                                 const void *data,
                                                 size_t size,
                                                 void *user_data);

// The functions of a backend's states. If `create` is NULL, the library allocates
// `rl_state_info.bytes` bytes for each state, aligned to 64 and set to zero. It also clears,
// copies, saves and restores them; it does not support `rewind`. If `create` is set, it makes the
// states. An operation whose function is NULL is then not supported. `destroy` may be NULL if there
// is nothing to free.
typedef struct rl_state_functions {
  // `sizeof(rl_state_functions)`.
  size_t struct_size;
  rl_state_describe_fn describe;
  rl_state_create_fn create;
  rl_state_destroy_fn destroy;
  rl_state_clear_fn clear;
  rl_state_rewind_fn rewind;
  rl_state_fork_fn fork;
  rl_state_save_fn save;
  rl_state_restore_fn restore;
} rl_state_functions;

// Returns the index of the device in whose memory a delegate expects or writes an argument; -1 for
// the host's memory. Inputs come first, then outputs. It is called once for each argument when the
// method is loaded.
typedef int64_t (*rl_device_memory_fn)(void *delegate, size_t argument, void *user_data);

// Makes a buffer of at least this many bytes for an argument in device memory, when the method is
// loaded.
typedef struct rl_status *(*rl_device_allocate_fn)(void *delegate,
                                                   size_t bytes,
                                                   void *user_data,
                                                   void **buffer);

// Frees a buffer, on any thread. It may be called after `rl_backend.destroy` has freed the delegate
// that allocated the buffer.
typedef void (*rl_device_free_fn)(void *buffer, void *user_data);

// Copies `data` to the beginning of a buffer, before anything that is submitted later. `data` lives
// until it returns.
typedef struct rl_status *(*rl_device_write_fn)(void *buffer,
                                                const void *data,
                                                size_t size,
                                                void *user_data);

// Copies the beginning of a buffer to `data`, after everything that was submitted. A slow device
// starts the copy and sets `*is_pending`; the function is then called again, with the same size,
// until `data` holds the bytes. `data` is invalid after the call returns, also if it sets
// `*is_pending`: write to it only in the call that completes the copy.
typedef struct rl_status *(*rl_device_read_fn)(void *buffer,
                                               void *data,
                                               size_t size,
                                               void *user_data,
                                               bool *is_pending);

// Continues a call that `rl_backend.execute` submitted. Sets `*is_pending` if it is not complete;
// the function is then called again. Outputs in host memory are written here.
typedef struct rl_status *(*rl_device_poll_fn)(void *delegate,
                                               struct rl_delegate_context *context,
                                               void *user_data,
                                               bool *is_pending);

// Waits until a pending call may continue. It may return early.
typedef struct rl_status *(*rl_device_wait_fn)(void *delegate, void *user_data);

// Cancels a call that was submitted and is not complete.
typedef void (*rl_device_cancel_fn)(void *delegate, void *user_data);

// The device of a backend. `rl_backend.execute` then submits a call; `poll` completes it.
//
// The library keeps values on the device between delegates that use one device, and copies them
// only where a value is needed in the other memory.
typedef struct rl_device_functions {
  // `sizeof(rl_device_functions)`.
  size_t struct_size;
  // The API of the device. Backends with the same `kind` use each other's buffers where the index
  // is the same. About its length is kept until the process ends.
  const char *kind;
  rl_device_memory_fn memory;
  rl_device_allocate_fn allocate;
  // May be NULL.
  rl_device_free_fn free;
  rl_device_write_fn write;
  rl_device_read_fn read;
  // May be NULL: a call is then complete when it was submitted.
  rl_device_poll_fn poll;
  // May be NULL.
  rl_device_wait_fn wait;
  // May be NULL.
  rl_device_cancel_fn cancel;
} rl_device_functions;

// The run-time half of a backend: makes a delegate from each part that its ahead-of-time half
// compiled. One thread at a time uses a delegate. It may be another thread at each call.
typedef struct rl_backend {
  // `sizeof(rl_backend)`.
  size_t struct_size;
  // The backend's name in programs.
  const char *name;
  rl_init_fn init;
  rl_execute_fn execute;
  // May be NULL.
  rl_destroy_fn destroy;
  // Passed to the functions. It follows the rules of an operator's `user_data`. Sessions that have
  // states of the backend use it, too.
  void *user_data;
  // `num_options` options that the backend declares. Others are errors. Their texts are kept until
  // the process ends.
  const struct rl_option_spec *options;
  size_t num_options;
  // Changes options that are not `only_at_load`. NULL if there are none.
  rl_set_option_fn set_option;
  // The device and its settings as text, such as "npu, 4 cores". May be NULL.
  const char *device_text;
  // May be NULL.
  rl_limits_fn limits;
  // The functions of the delegates' states. NULL if they have none.
  const struct rl_state_functions *states;
  // The device whose memory the delegates use. NULL for a backend that uses the host's.
  const struct rl_device_functions *device;
} rl_backend;

// Borrowed bytes. `data` is NULL if there are none.
typedef struct rl_bytes {
  const void *data;
  size_t size;
} rl_bytes;

// Source of a method: the path of a `.pt2` file that `torch.export.save` wrote, or its bytes. The
// only source may also be a published language model, which needs no PyTorch: the path of a Hugging
// Face folder or of a GGUF file.
typedef struct rl_exported {
  // The name of the method, such as `forward`. A language model's is always `forward`.
  const char *method;
  // The path, or NULL for bytes.
  const char *path;
  // `size` bytes, which are copied.
  const void *bytes;
  size_t size;
} rl_exported;

// Receives the progress of long work: the stage, which lives as long as the library, and the
// finished units of a total. A total of 0 means that the stage has no measure. Any thread may call
// it, one at a time. It must not throw exceptions or jump out of the call.
typedef void (*rl_progress_fn)(struct rl_string stage,
                               uint64_t done,
                               uint64_t total,
                               void *user_data);

// Options of a compilation. `RL_COMPILE_OPTIONS_INIT` has the defaults, which are all zero.
typedef struct rl_compile_options {
  // `sizeof(rl_compile_options)`.
  size_t struct_size;
  // `num_backends` backends in the order of priority, such as `cpu` or `cpu:precision=bf16`. None:
  // a portable program, which is compiled for the machine when it is loaded.
  const char *const *backends;
  size_t num_backends;
  // 1: methods share the buffers that have the same name.
  uint32_t share_state;
  // The quantization scheme, by a name that `rushlight quantize --help` lists, such as `int4` or
  // `8da4w`. NULL: none. Schemes that need samples for their calibration use the inputs that the
  // export recorded.
  const char *quantize;
  // Number of positions of a language model's KV cache. 0: that of the model, at most 2048.
  size_t max_context_len;
  // Ends the compilation, or the writing of its program, early. May be NULL.
  const struct rl_interrupt *interrupt;
  // Receives the progress, also while the program is written; `progress_data` is passed to it and
  // must live as long as the program. May be NULL.
  rl_progress_fn on_progress;
  void *progress_data;
  // `num_named` further options by name: `kv_cache`, `embeddings`, `observer`, `weights`, `keep`,
  // `min_snr`, `no_bias_correction`, `max_seq_len`, `full_logits`, `hidden_states`, `lora_rank`,
  // `tokenizer` and `no_tokenizer`. An option with the name of a field above replaces the field. A
  // list takes several options of its name. `rushlight compile --help` describes all options, with
  // `-` for `_`.
  const struct rl_option *named;
  size_t num_named;
} rl_compile_options;

// A message of a conversation.
typedef struct rl_llm_message {
  // `system`, `user`, `assistant`, or another role that the model knows.
  const char *role;
  const char *content;
} rl_llm_message;

// Receives the text of an answer while it is generated, on the thread of the call. Returns true to
// continue, false to end the answer. It must not throw exceptions or jump out of the call.
typedef bool (*rl_llm_text_fn)(struct rl_string text, void *user_data);

// A token of an answer with its log probability.
typedef struct rl_llm_token {
  uint32_t token;
  // Natural logarithm of the probability.
  double log_probability;
  // `num_top` most likely tokens, the most likely first, with their log probabilities.
  const uint32_t *top_tokens;
  const double *top_log_probabilities;
  size_t num_top;
} rl_llm_token;

// Receives each token of an answer, on the thread of the call, if the option `logprobs` is set. The
// token lives for the call. Returns true to continue, false to end the answer. It must not throw
// exceptions or jump out of the call.
typedef bool (*rl_llm_token_fn)(const struct rl_llm_token *token, void *user_data);

// Options of text generation. `RL_LLM_GENERATE_OPTIONS_INIT` has the defaults, which are those of
// all languages and of the command line. NULL stands for them.
typedef struct rl_llm_generate_options {
  // `sizeof(rl_llm_generate_options)`.
  size_t struct_size;
  // Maximum number of tokens. 0: until the context is full.
  size_t max_new_tokens;
  // Divides the logits; 0.8 by default. 0: the most likely token.
  float temperature;
  // Keeps the most likely tokens that together have this probability; 0.95 by default. 0 and 1:
  // all.
  float top_p;
  // Number of most likely tokens to keep; 40 by default. 0: all.
  size_t top_k;
  // Seed of the random numbers: the same seed gives the same answer.
  uint64_t seed;
  // `num_stop` texts that end the answer. They are not part of it.
  const char *const *stop;
  size_t num_stop;
  // Ends the answer early. May be NULL.
  const struct rl_interrupt *interrupt;
  // Receives the text; `text_data` is passed to it. May be NULL.
  rl_llm_text_fn on_text;
  void *text_data;
  // `num_named` further options by name, as `rushlight llm run --help` lists them with `-` for `_`:
  // `min_p`, `repetition_penalty`, `mirostat`, `logit_bias`, `logprobs`, `json_schema`, `speculate`
  // and others. They replace the fields above.
  const struct rl_option *named;
  size_t num_named;
  // Receives the tokens if the option `logprobs` is set; `token_data` is passed to it. May be NULL.
  rl_llm_token_fn on_token;
  void *token_data;
} rl_llm_generate_options;

// Token counts and times of an answer.
typedef struct rl_llm_usage {
  // `sizeof(rl_llm_usage)`, set by the caller.
  size_t struct_size;
  // Tokens of the prompt, without those that the session already had.
  size_t prompt_tokens;
  size_t generated_tokens;
  // Nanoseconds in which the model read the prompt, and in which it generated the answer, token by
  // token.
  uint64_t prefill_ns;
  uint64_t decode_ns;
  // An `rl_llm_finish`.
  uint32_t finish;
} rl_llm_usage;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the code of a status, an `rl_code`; `RL_OK` for NULL.
uint32_t rl_status_code(const struct rl_status *status);

// Returns one line that says what failed. Like the other texts of a status, it is UTF-8, lives as
// long as the status, and is NULL if the status is NULL.
const char *rl_status_message(const struct rl_status *status);

// Returns the place of the failure, such as an input, or an instruction with its line of Python;
// NULL if it is not known.
const char *rl_status_site(const struct rl_status *status);

// Returns what was expected, or NULL.
const char *rl_status_expected(const struct rl_status *status);

// Returns what was given instead, or NULL.
const char *rl_status_got(const struct rl_status *status);

// Returns what to do about it, or NULL.
const char *rl_status_hint(const struct rl_status *status);

// Returns the whole error in several lines, for people.
const char *rl_status_text(const struct rl_status *status);

// Returns the full name of a missing operator, such as `my::nms.out`; NULL after the last.
const char *rl_status_missing_operator(const struct rl_status *status, size_t index);

// Returns the system's error number (`errno` on Unix) if a file could not be accessed; 0 for other
// errors.
int32_t rl_status_os_error(const struct rl_status *status);

// Makes a status for a callback to return. Copies the message. `code` is an `rl_code`; `RL_OK`
// counts as `RL_INTERNAL`.
struct rl_status *rl_status_new(uint32_t code,
                                const char *message);

// Frees a status. NULL is allowed.
void rl_status_free(struct rl_status *status);

// Returns the version of the library, such as `0.1.0`. It may be newer than the header's.
const char *rl_version(void);

// Describes a row-major tensor. `sizes` and `data` are borrowed: they must live as long as the
// value is used.
struct rl_value rl_value_tensor(uint32_t dtype,
                                const int64_t *sizes,
                                size_t rank,
                                const void *data,
                                size_t nbytes);

// Describes an int.
struct rl_value rl_value_int(int64_t value);

// Describes a double.
struct rl_value rl_value_double(double value);

// Describes a bool.
struct rl_value rl_value_bool(bool value);

// Describes a NUL-terminated string, which is borrowed. NULL gives a value of the kind none.
struct rl_value rl_value_string(const char *text);

// Returns the bytes of one element; 0 for a number that is not an `rl_dtype`.
size_t rl_dtype_size(uint32_t dtype);

// Makes an interrupt, which is not set. It may be freed while calls run with it: they continue
// then.
struct rl_status *rl_interrupt_new(struct rl_interrupt **interrupt);

// Sets the flag (`is_set` is true), so that calls with this interrupt end before their next step
// with `RL_INVALID_STATE`, or clears it. It stays set until it is cleared. NULL does nothing.
void rl_interrupt_set(struct rl_interrupt *interrupt,
                      bool is_set);

// Frees an interrupt. NULL is allowed.
void rl_interrupt_free(struct rl_interrupt *interrupt);

// Loads a `.pte` file. `options` may be NULL.
//
// Errors: `RL_NOT_FOUND` and `RL_ACCESS_FAILED` for the file, `RL_INVALID_PROGRAM` for its content.
// Methods are checked when they are loaded: a missing operator, for example, is an error then.
struct rl_status *rl_module_load(const char *path,
                                 const struct rl_load_options *options,
                                 struct rl_module **module);

// Loads a program from the bytes of a `.pte` file, which are copied.
struct rl_status *rl_module_load_bytes(const void *bytes,
                                       size_t size,
                                       const struct rl_load_options *options,
                                       struct rl_module **module);

// Loads a program from the bytes of a `.pte` file without a copy. The bytes should be aligned to
// 16. They must not change until `release` (which may be NULL) is called: when no object uses them
// any more, or before this function returns if it fails.
struct rl_status *rl_module_load_borrowed(const void *bytes,
                                          size_t size,
                                          rl_release_fn release,
                                          void *user_data,
                                          const struct rl_load_options *options,
                                          struct rl_module **module);

// Frees a module that no thread uses. NULL is allowed. Its outputs, and values that its functions
// returned, are freed with it.
void rl_module_free(struct rl_module *module);

// Returns the name of a method, in the file's order; NULL after the last. It lives as long as the
// module. Any thread may call this.
const char *rl_module_method(const struct rl_module *module,
                             size_t index);

// Describes a method without loading it. Free the description with `rl_meta_free`.
struct rl_status *rl_module_meta(struct rl_module *module,
                                 const char *method,
                                 struct rl_meta **meta);

// Loads a method now rather than at its first call. The first method to be loaded also compiles a
// portable program for this machine.
struct rl_status *rl_module_load_method(struct rl_module *module,
                                        const char *method);

// Frees a method and its state. The next use loads it again. The outputs of its last call are
// freed.
struct rl_status *rl_module_unload_method(struct rl_module *module,
                                          const char *method);

// Changes an option of a backend for all methods, loaded or not.
struct rl_status *rl_module_set_option(struct rl_module *module,
                                       const struct rl_backend_option *option);

// Copies a parameter or buffer of a method, by its name in the exported module. The module owns the
// tensor, which lives until the next call of this function.
struct rl_status *rl_module_attribute(struct rl_module *module,
                                      const char *method,
                                      const char *name,
                                      struct rl_tensor *tensor);

// Runs a method.
//
// Inputs are views of the caller's memory, which must not change until the call returns. The method
// reads an input in place if the program planned no memory for it, and its strides and alignment
// are those that the program expects. Other inputs are copied once.
//
// `*outputs` are views, not copies, of the module's memory, or of an input that the method returns
// as it is. They live until the next use of the module by any function except `rl_module_method`
// and `rl_module_meta`. `outputs`, `num_outputs` and `options` may be NULL.
//
// Errors: `RL_INVALID_ARGUMENT` and `RL_INVALID_TYPE` for inputs that do not fit,
// `RL_INVALID_STATE` for an interrupted call, `RL_OUT_OF_RESOURCES` for a call that took too long,
// and those of loading the method. After an error there are no outputs. The method can be run
// again; its state may have changed or not.
struct rl_status *rl_module_run(struct rl_module *module,
                                const char *method,
                                const struct rl_value *inputs,
                                size_t num_inputs,
                                const struct rl_run_options *options,
                                const struct rl_value **outputs,
                                size_t *num_outputs);

// Makes a session over a module's weights. Loads all methods.
//
// Errors: `RL_NOT_SUPPORTED` for a program that keeps its state in its own memory rather than in a
// backend's.
struct rl_status *rl_session_new(struct rl_module *module,
                                 struct rl_session **session);

// Resets all states to their initial values.
struct rl_status *rl_session_clear(struct rl_session *session);

// Forgets everything from position `length` on, if the backends support it.
struct rl_status *rl_session_rewind(struct rl_session *session, size_t length);

// Makes a session that begins with the same state and continues independently.
struct rl_status *rl_session_fork(struct rl_session *session, struct rl_session **fork);

// Passes all states to `write`, in bytes that `rl_session_restore` reads. Backends may not support
// it.
struct rl_status *rl_session_save(struct rl_session *session,
                                  rl_write_fn write,
                                  void *write_data);

// Sets all states to saved ones, of a session of the same program. The bytes are untrusted.
struct rl_status *rl_session_restore(struct rl_session *session, const void *data, size_t size);

// Frees a session, before or after its module. NULL is allowed.
void rl_session_free(struct rl_session *session);

// Measures the peak rates of the device of a backend, by its name in programs. It takes about a
// fifth of a second for the CPU.
//
// Errors: `RL_NOT_SUPPORTED` if the backend measures nothing.
struct rl_status *rl_module_limits(struct rl_module *module,
                                   const char *backend,
                                   struct rl_device_limits *limits);

// Returns the method's name, or NULL for NULL.
const char *rl_meta_name(const struct rl_meta *meta);

// Returns the number of inputs; 0 for NULL.
size_t rl_meta_num_inputs(const struct rl_meta *meta);

// Returns the number of outputs; 0 for NULL.
size_t rl_meta_num_outputs(const struct rl_meta *meta);

// Returns the number of attributes: the parameters and buffers that the program names. 0 for NULL.
size_t rl_meta_num_attributes(const struct rl_meta *meta);

// Describes an input. The caller must set `info->struct_size`.
struct rl_status *rl_meta_input(const struct rl_meta *meta,
                                size_t index,
                                struct rl_value_info *info);

// Describes an output. The caller must set `info->struct_size`.
struct rl_status *rl_meta_output(const struct rl_meta *meta,
                                 size_t index,
                                 struct rl_value_info *info);

// Describes an attribute. The caller must set `info->struct_size`.
struct rl_status *rl_meta_attribute(const struct rl_meta *meta,
                                    size_t index,
                                    struct rl_value_info *info);

// Returns the name of a backend that runs a part of the method; NULL after the last. A backend that
// runs several parts is listed once for each.
const char *rl_meta_backend(const struct rl_meta *meta,
                            size_t index);

// Returns the full name of an operator that the method calls, such as `aten::add.out`; NULL after
// the last.
const char *rl_meta_operator(const struct rl_meta *meta,
                             size_t index);

// Returns the number of planned buffers; 0 for NULL.
size_t rl_meta_num_planned_buffers(const struct rl_meta *meta);

// Returns the bytes of a planned buffer; 0 if there is no such buffer.
uint64_t rl_meta_planned_buffer_size(const struct rl_meta *meta, size_t index);

// Returns the number of instructions; 0 for NULL.
size_t rl_meta_num_instructions(const struct rl_meta *meta);

// Frees a description. NULL is allowed.
void rl_meta_free(struct rl_meta *meta);

// Makes an empty registry.
struct rl_status *rl_registry_new(struct rl_registry **registry);

// Adds an operator. It is found before built-in operators, and before earlier ones of the same
// name. About 100 bytes of it are kept until the process ends: make one registry, not one for each
// module.
struct rl_status *rl_registry_add_operator(struct rl_registry *registry,
                                           const struct rl_operator *op);

// Adds a backend. It runs the parts of programs that are delegated to its name.
struct rl_status *rl_registry_add_backend(struct rl_registry *registry,
                                          const struct rl_backend *backend);

// Frees a registry. Modules that were loaded with it keep its operators and backends. NULL is
// allowed.
void rl_registry_free(struct rl_registry *registry);

// Returns the number of arguments, outputs included; 0 for NULL.
size_t rl_kernel_num_arguments(const struct rl_kernel_context *context);

// Reads an argument that is not an output. Memory that the value points at lives until the kernel
// returns, and must not be written.
struct rl_status *rl_kernel_argument(struct rl_kernel_context *context,
                                     size_t index,
                                     struct rl_value *value);

// Sets the sizes of an output and returns its memory for writing, once in a call. If `sizes` is
// NULL, the output keeps its sizes, which are upper bounds if they are dynamic. Memory that
// `tensor` points at lives until the kernel returns.
struct rl_status *rl_kernel_output(struct rl_kernel_context *context,
                                   size_t index,
                                   const int64_t *sizes,
                                   size_t rank,
                                   struct rl_tensor *tensor);

// Returns the name of the method that is loaded; empty for NULL.
struct rl_string rl_init_method(const struct rl_init_context *context);

// Returns the payload, which lives as long as the delegate.
struct rl_bytes rl_init_payload(const struct rl_init_context *context);

// Returns the value of a compile spec that the ahead-of-time half received. It lives as long as the
// delegate.
struct rl_bytes rl_init_compile_spec(const struct rl_init_context *context,
                                     const char *key);

// Returns named data of the program or its data files. It lives as long as the delegate.
struct rl_bytes rl_init_named_data(const struct rl_init_context *context, const char *key);

// Reads an option that the backend declares: the value that the program was loaded with, or the
// default. A string lives until `rl_backend.init` returns.
struct rl_status *rl_init_option(const struct rl_init_context *context,
                                 const char *name,
                                 struct rl_value *value);

// Returns the number of inputs; 0 for NULL.
size_t rl_delegate_num_inputs(const struct rl_delegate_context *context);

// Reads an input: a tensor or a number. Memory that the value points at lives until the delegate
// returns, and must not be written.
struct rl_status *rl_delegate_input(struct rl_delegate_context *context,
                                    size_t index,
                                    struct rl_value *value);

// Sets the sizes of an output and returns its memory for writing, once in a call, as
// `rl_kernel_output` does. Outputs are counted from 0.
struct rl_status *rl_delegate_output(struct rl_delegate_context *context,
                                     size_t index,
                                     const int64_t *sizes,
                                     size_t rank,
                                     struct rl_tensor *tensor);

// Checks, between steps of a long call, whether the call must end: its interrupt is set, or its
// time limit is reached. If so, the delegate returns the status.
struct rl_status *rl_delegate_check(const struct rl_delegate_context *context);

// Returns the address of a state: its bytes, or what `rl_state_functions.create` made. States are
// those that the delegate describes, by their index. NULL if there is no such state.
void *rl_delegate_state(struct rl_delegate_context *context,
                        size_t index);

// Returns the buffer of an argument in device memory, as `rl_device_functions.allocate` made it.
// Inputs come first, then outputs. NULL for an argument in host memory.
void *rl_delegate_buffer(const struct rl_delegate_context *context,
                         size_t argument);

// Returns true if anyone receives the events of the delegate. Ask before doing anything for them
// that costs time.
bool rl_delegate_has_tracer(const struct rl_delegate_context *context);

// Reports the beginning of an event, for profiles and traces.
struct rl_status *rl_delegate_begin(const struct rl_delegate_context *context,
                                    const struct rl_delegate_event *event);

// Reports the end of an event.
struct rl_status *rl_delegate_end(const struct rl_delegate_context *context,
                                  const struct rl_delegate_event *event);

// Reports an event that a device timed by its own clock, in nanoseconds. It may come after the call
// in which it was.
struct rl_status *rl_delegate_timed(const struct rl_delegate_context *context,
                                    const struct rl_delegate_event *event,
                                    uint64_t start,
                                    uint64_t end);

// Compiles exported programs. Each becomes a method of one program. `options` may be NULL.
//
// Errors: `RL_NOT_FOUND`, `RL_ACCESS_FAILED` and `RL_INVALID_PROGRAM` for files, `RL_NOT_SUPPORTED`
// for anything that the compiler does not have, `RL_INVALID_STATE` if it was interrupted. The error
// names the node and its line of Python.
struct rl_status *rl_compile(const struct rl_exported *exported,
                             size_t num_exported,
                             const struct rl_compile_options *options,
                             struct rl_program **program);

// Returns the bytes of a compiled program, which live as long as the program.
// `rl_module_load_bytes` takes them.
struct rl_status *rl_program_bytes(const struct rl_program *program,
                                   struct rl_bytes *bytes);

// Writes a compiled program to a file. Writes a file beside it first and renames that, so that the
// old file stays if writing fails. Never replaces a file that the program was compiled from.
struct rl_status *rl_program_save(const struct rl_program *program,
                                  const char *path);

// Frees a compiled program. NULL is allowed.
void rl_program_free(struct rl_program *program);

// Describes a tensor of another library, by its `DLManagedTensorVersioned` of dlpack.h: a view
// without a copy, which lives as long as the managed tensor, whose owner the caller stays.
//
// Errors: `RL_NOT_SUPPORTED` for another major version, for memory that is not the CPU's and for
// negative strides, `RL_INVALID_TYPE` for other element types.
struct rl_status *rl_tensor_from_dlpack(const struct DLManagedTensorVersioned *managed,
                                        struct rl_tensor *tensor);

// Copies a tensor, such as an output, to one that other libraries take over: a
// `DLManagedTensorVersioned` of dlpack.h, row-major, whose last owner calls its deleter, on any
// thread.
//
// Errors: `RL_NOT_SUPPORTED` for element types that DLPack does not have.
struct rl_status *rl_tensor_to_dlpack(const struct rl_tensor *tensor,
                                      struct DLManagedTensorVersioned **managed);

// Loads a language model: a `.pte` file that `rushlight compile` or ExecuTorch made. `tokenizer` is
// the path of a tokenizer. NULL selects the one in the program or beside it. `options` may be NULL.
struct rl_status *rl_llm_load(const char *path,
                              const char *tokenizer,
                              const struct rl_load_options *options,
                              struct rl_llm **llm);

// Sets the LoRA adapter of the sessions that are made after this call. `folder` is the folder in
// which PEFT saved it, or NULL for no adapter. `scale` multiplies the adapter's effect.
//
// Errors: `RL_NOT_SUPPORTED` for a program that was compiled without a `lora_rank`.
struct rl_status *rl_llm_set_adapter(struct rl_llm *llm,
                                     const char *folder,
                                     float scale);

// Encodes text to tokens, which live until the next call of this model. `add_special` adds the
// tokens that a text begins and ends with.
struct rl_status *rl_llm_encode(struct rl_llm *llm,
                                struct rl_string text,
                                bool add_special,
                                const uint32_t **tokens,
                                size_t *num_tokens);

// Decodes tokens to text, which lives until the next call of this model.
struct rl_status *rl_llm_decode(struct rl_llm *llm,
                                const uint32_t *tokens,
                                size_t num_tokens,
                                struct rl_string *text);

// Formats messages as the text of a prompt, with the model's chat template. The text lives until
// the next call of this model. `rl_llm_encode` encodes it to tokens; `add_special` must be false,
// because the text has the special tokens.
//
// Errors: `RL_NOT_FOUND` for a model without a chat template.
struct rl_status *rl_llm_chat_prompt(struct rl_llm *llm,
                                     const struct rl_llm_message *messages,
                                     size_t num_messages,
                                     struct rl_string *prompt);

// Makes a session that has read nothing yet.
struct rl_status *rl_llm_session_new(struct rl_llm *llm, struct rl_llm_session **session);

// Forgets everything that a session has read. A session whose last call failed can then be used
// again.
struct rl_status *rl_llm_session_reset(struct rl_llm *llm,
                                       struct rl_llm_session *session);

// Forgets all tokens of a session from `position` on.
struct rl_status *rl_llm_session_rewind(struct rl_llm *llm,
                                        struct rl_llm_session *session,
                                        size_t position);

// Returns the number of tokens that a session has read.
struct rl_status *rl_llm_session_position(struct rl_llm_session *session, size_t *position);

// Makes a session that has read the same tokens and continues independently.
struct rl_status *rl_llm_session_fork(struct rl_llm_session *session, struct rl_llm_session **fork);

// Makes a session read tokens, and returns the logits of the next token, one for each entry of the
// vocabulary. They live until the next call of this session. `logits` and `num_logits` may be NULL.
//
// Errors: as for `rl_llm_generate`.
struct rl_status *rl_llm_prefill(struct rl_llm *llm,
                                 struct rl_llm_session *session,
                                 const uint32_t *tokens,
                                 size_t num_tokens,
                                 const float **logits,
                                 size_t *num_logits);

// Adds the tokens of a prompt to a session and generates an answer. The callback in `options`
// receives it while it is generated. Without a prompt, the answer continues the tokens that the
// session has read. `options` and `usage` may be NULL.
//
// Errors: `RL_OUT_OF_RESOURCES` if the prompt does not fit the context, `RL_INVALID_STATE` for a
// session whose last call failed.
struct rl_status *rl_llm_generate(struct rl_llm *llm,
                                  struct rl_llm_session *session,
                                  const uint32_t *prompt,
                                  size_t num_tokens,
                                  const struct rl_llm_generate_options *options,
                                  struct rl_llm_usage *usage);

// Frees a session. NULL is allowed.
void rl_llm_session_free(struct rl_llm_session *session);

// Frees a language model. NULL is allowed.
void rl_llm_free(struct rl_llm *llm);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RUSHLIGHT_H */
