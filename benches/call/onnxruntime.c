/* Calls by the C API of ONNX Runtime, whose library is the second argument. The Python package brings the library and no header; functions of
 * its table keep their places for ever, which are named here. */
#define _POSIX_C_SOURCE 199309L
#include "callers.h"

#include <dlfcn.h>
#include <stdint.h>

struct api_base {
  void *const *(*table)(uint32_t version);
  const char *(*version)(void);
};

/* Types of functions whose arguments are handles and plain values. */
typedef void *(*create_env)(int level, const char *name, void **env);
typedef void *(*create_session)(void *env, const char *path, void *options, void **session);
typedef void *(*run_session)(void *session, void *options, const char *const *input_names, void *const *inputs, size_t num_inputs,
                             const char *const *output_names, size_t num_outputs, void **outputs);
typedef void *(*create_options)(void **options);
typedef void *(*set_number)(void *options, int number);
typedef void *(*create_tensor)(void *memory, void *data, size_t nbytes, const int64_t *sizes, size_t rank, int dtype, void **value);
typedef void *(*get_data)(void *value, void **data);
typedef void *(*create_memory)(int allocator, int type, void **memory);
typedef void (*release)(void *object);

enum {
  CREATE_ENV = 3,
  CREATE_SESSION = 7,
  RUN = 9,
  CREATE_SESSION_OPTIONS = 10,
  SET_INTRA_OP_NUM_THREADS = 24,
  CREATE_TENSOR_WITH_DATA = 49,
  GET_TENSOR_MUTABLE_DATA = 51,
  CREATE_CPU_MEMORY_INFO = 69,
  RELEASE_VALUE = 96,
};

static float ones[] = {1, 1, 1, 1, 1, 1}, twos[] = {2, 2, 2, 2, 2, 2};
static const char *const input_names[] = {"x", "y"}, *const output_names[] = {"sum"};
static void *session, *inputs[2];
static run_session run;
static get_data data_of;
static release release_value;

static float call(void) {
  void *output = NULL, *data = NULL;
  require_that(run(session, NULL, input_names, inputs, 2, output_names, 1, &output) == NULL, "the call failed");
  require_that(data_of(output, &data) == NULL, "no output");
  const float first = *(const float *)data;
  release_value(output);
  return first;
}

int main(int argc, char **argv) {
  void *library = argc == 3 ? dlopen(argv[2], RTLD_NOW) : NULL;
  require_that(library != NULL, "cannot load the library");
  const struct api_base *(*base)(void);
  *(void **)&base = dlsym(library, "OrtGetApiBase");
  require_that(base != NULL, "no C API");
  /* Version 1 of the table has all that is called here. */
  void *const *api = base()->table(1);
  void *env = NULL, *options = NULL, *memory = NULL;
  require_that(((create_env)api[CREATE_ENV])(3, "call", &env) == NULL, "no environment");
  require_that(((create_options)api[CREATE_SESSION_OPTIONS])(&options) == NULL, "no options");
  require_that(((set_number)api[SET_INTRA_OP_NUM_THREADS])(options, 1) == NULL, "no thread");
  require_that(((create_session)api[CREATE_SESSION])(env, argv[1], options, &session) == NULL, "cannot load the model");
  require_that(((create_memory)api[CREATE_CPU_MEMORY_INFO])(1, 0, &memory) == NULL, "no memory");
  const int64_t sizes[] = {2, 3};
  float *const data[] = {ones, twos};
  for (int i = 0; i < 2; i++) {
    void *status = ((create_tensor)api[CREATE_TENSOR_WITH_DATA])(memory, data[i], sizeof ones, sizes, 2, 1, &inputs[i]);
    require_that(status == NULL, "no tensor");
  }
  run = (run_session)api[RUN];
  data_of = (get_data)api[GET_TENSOR_MUTABLE_DATA];
  release_value = (release)api[RELEASE_VALUE];
  return answer_all(call);
}
