/* Every function of the C ABI, and what it refuses. Programs and expected numbers are recorded of PyTorch: corpus.h is made of
 * tests/corpus. It is compiled as C99 and as C++17. */
#include "check.h"
#include "corpus.h"

static const char *root;

static const rl_load_options default_load = RL_LOAD_OPTIONS_INIT;
static const rl_run_options default_run = RL_RUN_OPTIONS_INIT;
static const rl_compile_options default_compile = RL_COMPILE_OPTIONS_INIT;
static const rl_llm_generate_options default_generate = RL_LLM_GENERATE_OPTIONS_INIT;
static const rl_value_info default_info = RL_VALUE_INFO_INIT;

static rl_module *load(const char *name, const rl_load_options *options) {
  rl_module *module = NULL;
  OK(rl_module_load(path_of(root, name), options, &module));
  return module;
}

/* -- Statuses -- */

static void statuses(void) {
  rl_status *status = rl_status_new(RL_NOT_FOUND, "there is no such thing");
  CHECK(rl_status_code(status) == RL_NOT_FOUND);
  CHECK(strcmp(rl_status_message(status), "there is no such thing") == 0);
  CHECK(strcmp(rl_status_text(status), "[NotFound 0x20] there is no such thing") == 0);
  CHECK(rl_status_site(status) == NULL && rl_status_expected(status) == NULL);
  CHECK(rl_status_got(status) == NULL && rl_status_hint(status) == NULL);
  CHECK(rl_status_missing_operator(status, 0) == NULL && rl_status_os_error(status) == 0);
  rl_status_free(status);
  status = rl_status_new(RL_OK, NULL);
  CHECK(rl_status_code(status) == RL_INTERNAL && strcmp(rl_status_message(status), "") == 0);
  rl_status_free(status);
  rl_status_free(NULL);
  CHECK(rl_status_code(NULL) == RL_OK && rl_status_text(NULL) == NULL);
  CHECK(strncmp(rl_version(), "0.", 2) == 0);
  CHECK(rl_dtype_size(RL_DTYPE_FLOAT64) == 8 && rl_dtype_size(RL_DTYPE_BFLOAT16) == 2 && rl_dtype_size(1000) == 0);
}

/* -- Every recorded program -- */

static rl_value value_of(const struct recorded_tensor *tensor) {
  return rl_value_tensor(tensor->dtype, tensor->sizes, tensor->rank, tensor->data, tensor->nbytes);
}

/* An element as a number, by its place in row-major order. */
static double element(const rl_tensor *tensor, size_t index) {
  size_t at = index;
  if (tensor->strides != NULL) {
    at = 0;
    for (size_t dim = tensor->rank; dim-- > 0;) {
      at += index % (size_t)tensor->sizes[dim] * (size_t)tensor->strides[dim];
      index /= (size_t)tensor->sizes[dim];
    }
  }
  const char *data = (const char *)tensor->data + at * rl_dtype_size(tensor->dtype);
  switch (tensor->dtype) {
    case RL_DTYPE_FLOAT32: { float x; memcpy(&x, data, sizeof x); return x; }
    case RL_DTYPE_INT64: { int64_t x; memcpy(&x, data, sizeof x); return (double)x; }
    case RL_DTYPE_BOOL: { unsigned char x; memcpy(&x, data, sizeof x); return x; }
    case RL_DTYPE_FLOAT16:
    case RL_DTYPE_BFLOAT16: { uint16_t x; memcpy(&x, data, sizeof x); return x; }
    default: CHECK(!"an element type of the corpus"); return 0;
  }
}

static void agrees(const rl_value *got, const struct recorded_tensor *expected, double tolerance, const char *name) {
  const rl_value wanted = value_of(expected);
  const rl_tensor *a = &got->as.tensor, *b = &wanted.as.tensor;
  size_t count = 1;
  CHECK(got->kind == RL_KIND_TENSOR && a->dtype == b->dtype && a->rank == b->rank);
  for (size_t dim = 0; dim < a->rank; dim++) {
    CHECK(a->sizes[dim] == b->sizes[dim]);
    count *= (size_t)a->sizes[dim];
  }
  CHECK(a->nbytes == count * rl_dtype_size(a->dtype));
  for (size_t i = 0; i < count; i++) {
    if (!is_near(element(a, i), element(b, i), tolerance)) {
      fprintf(stderr, "%s: element %u is %g, not %g\n", name, (unsigned)i, element(a, i), element(b, i));
      exit(1);
    }
  }
}

static void recorded_programs(void) {
  static unsigned char room[1 << 16];
  size_t calls = 0;
  for (const struct recorded_program *program = recorded; program->path != NULL; program++) {
    rl_data data = {NULL, NULL, 0};
    rl_load_options options = RL_LOAD_OPTIONS_INIT;
    if (program->data != NULL) {
      data.path = path_of(root, program->data);
      options.data = &data;
      options.num_data = 1;
    }
    rl_module *module = load(program->path, &options);
    for (size_t c = 0; c < program->num_calls; c++) {
      const struct recorded_call *call = &program->calls[c];
      rl_value inputs[4];
      const rl_value *outputs = NULL;
      size_t num_outputs = 0;
      for (size_t i = 0; i < call->num_inputs; i++) inputs[i] = value_of(&call->inputs[i]);
      /* What a call returns is written to memory of ours, too: the first output. */
      rl_run_options run = RL_RUN_OPTIONS_INIT;
      rl_value wanted = rl_value_tensor(call->outputs[0].dtype, NULL, 0, room, sizeof room);
      run.outputs = &wanted;
      run.num_outputs = 1;
      OK(rl_module_run(module, call->method, inputs, call->num_inputs, &run, &outputs, &num_outputs));
      CHECK(num_outputs == call->num_outputs);
      for (size_t i = 0; i < num_outputs; i++) agrees(&outputs[i], &call->outputs[i], call->tolerance, program->path);
      CHECK(wanted.as.tensor.data == room && wanted.as.tensor.strides == NULL);
      agrees(&wanted, &call->outputs[0], call->tolerance, program->path);
      calls++;
    }
    rl_module_free(module);
  }
  CHECK(calls >= 30);
}

/* -- Inputs that do not fit -- */

static void wrong_inputs(void) {
  rl_module *module = load("tests/corpus/1.5.1/add.pte", NULL);
  const int64_t sizes[] = {2, 3}, more[] = {2, 4}, negative[] = {-2, 3};
  const float six[6] = {1, 2, 3, 4, 5, 6};
  const float eight[8] = {0};
  const rl_value good = rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 2, six, sizeof six);
  rl_value inputs[2] = {good, good};
  const rl_value *outputs = (const rl_value *)1;
  size_t count = 77;

  inputs[1] = rl_value_tensor(RL_DTYPE_FLOAT32, more, 2, eight, sizeof eight);
  rl_status *status = rl_module_run(module, "forward", inputs, 2, NULL, &outputs, &count);
  CHECK(rl_status_code(status) == RL_INVALID_ARGUMENT);
  CHECK(strstr(rl_status_message(status), "wrong shape") != NULL);
  CHECK(strstr(rl_status_site(status) ? rl_status_site(status) : rl_status_message(status), "input 1") != NULL);
  CHECK(strstr(rl_status_expected(status), "f32 [2, 3]") != NULL);
  CHECK(strstr(rl_status_got(status), "f32 [2, 4]") != NULL);
  rl_status_free(status);
  CHECK(outputs == (const rl_value *)1 && count == 77);

  FAILS(rl_module_run(module, "forward", inputs, 1, NULL, NULL, NULL), RL_INVALID_ARGUMENT, "expected");
  FAILS(rl_module_run(module, "forward", NULL, 2, NULL, NULL, NULL), RL_INVALID_ARGUMENT, "`inputs` is NULL");
  FAILS(rl_module_run(module, "backward", inputs, 2, NULL, NULL, NULL), RL_NOT_FOUND, "one of: forward");
  FAILS(rl_module_run(module, NULL, inputs, 2, NULL, NULL, NULL), RL_INVALID_ARGUMENT, "`method` is NULL");
  FAILS(rl_module_run(module, "\xff", inputs, 2, NULL, NULL, NULL), RL_INVALID_ARGUMENT, "UTF-8");
  FAILS(rl_module_run(NULL, "forward", inputs, 2, NULL, NULL, NULL), RL_INVALID_ARGUMENT, "`module` is NULL");
  inputs[1] = rl_value_tensor(RL_DTYPE_INT32, sizes, 2, six, sizeof six);
  FAILS(rl_module_run(module, "forward", inputs, 2, NULL, NULL, NULL), RL_INVALID_TYPE, "input 1");
  inputs[1] = rl_value_tensor(1234, sizes, 2, six, sizeof six);
  FAILS(rl_module_run(module, "forward", inputs, 2, NULL, NULL, NULL), RL_INVALID_TYPE, "no element type 1234");
  inputs[1] = rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 2, six, 20);
  FAILS(rl_module_run(module, "forward", inputs, 2, NULL, NULL, NULL), RL_INVALID_ARGUMENT, "input 1");
  inputs[1] = rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 2, NULL, sizeof six);
  FAILS(rl_module_run(module, "forward", inputs, 2, NULL, NULL, NULL), RL_INVALID_ARGUMENT, "`data` is NULL");
  inputs[1] = rl_value_tensor(RL_DTYPE_FLOAT32, negative, 2, six, sizeof six);
  FAILS(rl_module_run(module, "forward", inputs, 2, NULL, NULL, NULL), RL_INVALID_ARGUMENT, "negative");
  inputs[1] = rl_value_tensor(RL_DTYPE_FLOAT32, NULL, 2, six, sizeof six);
  FAILS(rl_module_run(module, "forward", inputs, 2, NULL, NULL, NULL), RL_INVALID_ARGUMENT, "`sizes` is NULL");
  /* Sizes beyond the array are not read. */
  inputs[1] = rl_value_tensor(RL_DTYPE_FLOAT32, sizes, sizeof sizes + 1, six, sizeof six);
  FAILS(rl_module_run(module, "forward", inputs, 2, NULL, NULL, NULL), RL_INVALID_ARGUMENT, "rank at most 16, got rank 17");
  inputs[1] = rl_value_int(3);
  FAILS(rl_module_run(module, "forward", inputs, 2, NULL, NULL, NULL), RL_INVALID_TYPE, "input 1");
  inputs[1].kind = RL_KIND_INT_LIST;
  FAILS(rl_module_run(module, "forward", inputs, 2, NULL, NULL, NULL), RL_INVALID_TYPE, "cannot be an input");
  inputs[1].kind = 99;
  FAILS(rl_module_run(module, "forward", inputs, 2, NULL, NULL, NULL), RL_INVALID_TYPE, "kind 99");

  /* Strides: of a transposed matrix, whose elements are not copied here. */
  const int64_t transposed[] = {1, 2};
  const float columns[6] = {1, 4, 2, 5, 3, 6};
  inputs[1] = rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 2, columns, sizeof columns);
  inputs[1].as.tensor.strides = transposed;
  OK(rl_module_run(module, "forward", inputs, 2, NULL, &outputs, &count));
  float strided[6];
  memcpy(strided, outputs[0].as.tensor.data, sizeof strided);
  inputs[1] = good;
  OK(rl_module_run(module, "forward", inputs, 2, NULL, &outputs, &count));
  CHECK(memcmp(strided, outputs[0].as.tensor.data, sizeof strided) == 0);
  inputs[1].as.tensor.strides = transposed;
  inputs[1].as.tensor.nbytes = 20;
  FAILS(rl_module_run(module, "forward", inputs, 2, NULL, NULL, NULL), RL_INVALID_ARGUMENT, "24 bytes are needed");
  inputs[1] = good;

  /* Memory for outputs. */
  rl_run_options run = RL_RUN_OPTIONS_INIT;
  rl_value wanted[2] = {rl_value_tensor(RL_DTYPE_FLOAT32, NULL, 0, strided, 20), rl_value_int(0)};
  run.outputs = wanted;
  run.num_outputs = 1;
  FAILS(rl_module_run(module, "forward", inputs, 2, &run, NULL, NULL), RL_INVALID_ARGUMENT, "takes 24 bytes");
  wanted[0].as.tensor.nbytes = sizeof strided;
  wanted[0].as.tensor.dtype = RL_DTYPE_INT32;
  FAILS(rl_module_run(module, "forward", inputs, 2, &run, NULL, NULL), RL_INVALID_TYPE, "expected memory for f32, got i32");
  wanted[0].kind = RL_KIND_NONE;
  run.num_outputs = 2;
  FAILS(rl_module_run(module, "forward", inputs, 2, &run, NULL, NULL), RL_INVALID_TYPE, "output 1");
  run.outputs = NULL;
  FAILS(rl_module_run(module, "forward", inputs, 2, &run, NULL, NULL), RL_INVALID_ARGUMENT, "`outputs` is NULL");

  /* Options of other versions of the header. */
  run = default_run;
  run.struct_size = 0;
  FAILS(rl_module_run(module, "forward", inputs, 2, &run, NULL, NULL), RL_INVALID_ARGUMENT, "struct_size");
  struct {
    rl_run_options known;
    size_t more;
  } newer = {RL_RUN_OPTIONS_INIT, 0};
  newer.known.struct_size = sizeof newer;
  OK(rl_module_run(module, "forward", inputs, 2, &newer.known, NULL, NULL));
  newer.more = 1;
  FAILS(rl_module_run(module, "forward", inputs, 2, &newer.known, NULL, NULL), RL_NOT_SUPPORTED, "does not know");
  size_t oldest = sizeof oldest;
  OK(rl_module_run(module, "forward", inputs, 2, (const rl_run_options *)&oldest, NULL, NULL));
  rl_module_free(module);
}

/* -- Loading -- */

static int released;

static void release(void *user_data) { *(int *)user_data += 1; }

static void *read_whole(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  CHECK(file != NULL);
  CHECK(fseek(file, 0, SEEK_END) == 0);
  *size = (size_t)ftell(file);
  rewind(file);
  void *bytes = malloc(*size);
  CHECK(bytes != NULL && fread(bytes, 1, *size, file) == *size);
  fclose(file);
  return bytes;
}

static void loading(void) {
  rl_module *module = NULL;
  rl_status *status = rl_module_load(path_of(root, "missing.pte"), NULL, &module);
  CHECK(rl_status_code(status) == RL_NOT_FOUND && rl_status_os_error(status) == 2 && module == NULL);
  rl_status_free(status);
  FAILS(rl_module_load(NULL, NULL, &module), RL_INVALID_ARGUMENT, "`path` is NULL");
  FAILS(rl_module_load("x", NULL, NULL), RL_INVALID_ARGUMENT, "`module` is NULL");
  FAILS(rl_module_load(path_of(root, "README.md"), NULL, &module), RL_INVALID_PROGRAM, "README.md");
  FAILS(rl_module_load_bytes("PK", 2, NULL, &module), RL_INVALID_PROGRAM, "");
  FAILS(rl_module_load_bytes(NULL, 2, NULL, &module), RL_INVALID_ARGUMENT, "`bytes` is NULL");

  rl_load_options options = RL_LOAD_OPTIONS_INIT;
  const char *add = path_of(root, "tests/corpus/1.5.1/add.pte");
  for (options.mode = 0; options.mode < 4; options.mode++) {
    if (options.mode == RL_LOAD_MMAP_LOCKED) continue;
    OK(rl_module_load(add, &options, &module));
    rl_module_free(module);
  }
  FAILS(rl_module_load(add, &options, &module), RL_INVALID_ARGUMENT, "no mode 4");
  options = default_load;
  options.lower = "nothing";
  FAILS(rl_module_load(add, &options, &module), RL_NOT_FOUND, "nothing");
  options.lower = "off";
  options.cache = "";
  options.threads = 1;
  options.share_memory = 1;
  options.memory_limit = 1 << 20;
  options.time_limit = 10 * 1000 * 1000;
  const rl_backend_option unknown = {"cpu", "no_such_option", rl_value_bool(true)};
  options.backend_options = &unknown;
  options.num_backend_options = 1;
  FAILS(rl_module_load(add, &options, &module), RL_NOT_FOUND, "no_such_option");
  options.num_backend_options = 0;
  OK(rl_module_load(add, &options, &module));
  CHECK(strcmp(rl_module_method(module, 0), "forward") == 0 && rl_module_method(module, 1) == NULL);
  OK(rl_module_load_method(module, "forward"));
  FAILS(rl_module_load_method(module, "backward"), RL_NOT_FOUND, "backward");
  OK(rl_module_unload_method(module, "forward"));
  FAILS(rl_module_set_option(module, &unknown), RL_NOT_FOUND, "no_such_option");
  const rl_backend_option real = {"cpu", "no_such_option", rl_value_double(1)};
  FAILS(rl_module_set_option(module, &real), RL_INVALID_TYPE, "expected a bool");
  rl_module_free(module);
  options.memory_limit = 16;
  OK(rl_module_load(add, &options, &module));
  FAILS(rl_module_load_method(module, "forward"), RL_MEMORY_ALLOCATION_FAILED, "");
  rl_module_free(module);
  rl_module_free(NULL);

  /* Bytes: copied, and where they are. */
  size_t size;
  void *bytes = read_whole(add, &size);
  OK(rl_module_load_bytes(bytes, size, NULL, &module));
  rl_module_free(module);
  OK(rl_module_load_borrowed(bytes, size, release, &released, NULL, &module));
  CHECK(released == 0);
  OK(rl_module_load_method(module, "forward"));
  rl_module_free(module);
  CHECK(released == 1);
  FAILS(rl_module_load_borrowed(bytes, 3, release, &released, NULL, &module), RL_INVALID_PROGRAM, "");
  CHECK(released == 2);
  free(bytes);

  /* Weights of data files. */
  OK(rl_module_load(path_of(root, "tests/corpus/1.5.1/external.pte"), NULL, &module));
  status = rl_module_load_method(module, "forward");
  CHECK(rl_status_code(status) != RL_OK && strstr(rl_status_hint(status), "external.ptd") != NULL);
  rl_status_free(status);
  rl_module_free(module);
  bytes = read_whole(path_of(root, "tests/corpus/1.5.1/external.ptd"), &size);
  const rl_data data = {NULL, bytes, size};
  options = default_load;
  options.data = &data;
  options.num_data = 1;
  OK(rl_module_load(path_of(root, "tests/corpus/1.5.1/external.pte"), &options, &module));
  OK(rl_module_load_method(module, "forward"));
  rl_module_free(module);
  free(bytes);
}

/* -- Descriptions -- */

static rl_module *compile(const char *name, const char *backend, const rl_load_options *options) {
  char path[64];
  snprintf(path, sizeof path, "tests/corpus/pt2/%s.pt2", name);
  const rl_exported exported = {"forward", path_of(root, path), NULL, 0};
  rl_compile_options compile = RL_COMPILE_OPTIONS_INIT;
  compile.backends = &backend;
  compile.num_backends = backend != NULL;
  rl_program *program = NULL;
  OK(rl_compile(&exported, 1, &compile, &program));
  rl_bytes bytes;
  OK(rl_program_bytes(program, &bytes));
  rl_module *module = NULL;
  OK(rl_module_load_bytes(bytes.data, bytes.size, options, &module));
  rl_program_free(program);
  return module;
}

static void descriptions(void) {
  rl_module *module = load("tests/corpus/1.5.1/dynamic.pte", NULL);
  rl_meta *meta = NULL;
  OK(rl_module_meta(module, "forward", &meta));
  FAILS(rl_module_meta(module, "backward", &meta), RL_NOT_FOUND, "backward");
  rl_module_free(module);
  CHECK(strcmp(rl_meta_name(meta), "forward") == 0);
  CHECK(rl_meta_num_inputs(meta) == 1 && rl_meta_num_outputs(meta) == 1);
  rl_value_info info = RL_VALUE_INFO_INIT;
  OK(rl_meta_input(meta, 0, &info));
  CHECK(info.value.kind == RL_KIND_TENSOR && info.is_dynamic && info.is_memory_planned && info.name == NULL);
  CHECK(info.value.as.tensor.dtype == RL_DTYPE_FLOAT32 && info.value.as.tensor.rank == 2);
  CHECK(info.value.as.tensor.sizes[0] == 8 && info.value.as.tensor.sizes[1] == 4);
  CHECK(info.value.as.tensor.nbytes == 8 * 4 * sizeof(float) && info.value.as.tensor.data == NULL);
  CHECK(info.dim_order[0] == 0 && info.dim_order[1] == 1 && info.ranges == NULL);
  OK(rl_meta_output(meta, 0, &info));
  CHECK(info.value.as.tensor.rank == 1 && info.value.as.tensor.sizes[0] == 24);
  FAILS(rl_meta_input(meta, 1, &info), RL_INVALID_ARGUMENT, "no input 1");
  FAILS(rl_meta_input(meta, 0, NULL), RL_INVALID_ARGUMENT, "`info` is NULL");
  FAILS(rl_meta_input(NULL, 0, &info), RL_INVALID_ARGUMENT, "`meta` is NULL");
  info.struct_size = 1;
  FAILS(rl_meta_input(meta, 0, &info), RL_INVALID_ARGUMENT, "struct_size");
  CHECK(rl_meta_num_instructions(meta) > 0 && rl_meta_operator(meta, 0) != NULL);
  CHECK(strncmp(rl_meta_operator(meta, 0), "aten::", 6) == 0 && rl_meta_operator(meta, 99) == NULL);
  CHECK(rl_meta_num_planned_buffers(meta) == 1 && rl_meta_planned_buffer_size(meta, 0) > 0);
  CHECK(rl_meta_planned_buffer_size(meta, 1) == 0 && rl_meta_backend(meta, 0) == NULL);
  rl_meta_free(meta);
  rl_meta_free(NULL);

  module = load("tests/corpus/1.5.1/xnnpack.pte", NULL);
  OK(rl_module_meta(module, "forward", &meta));
  CHECK(strcmp(rl_meta_backend(meta, 0), "XnnpackBackend") == 0 && rl_meta_backend(meta, 1) == NULL);
  rl_meta_free(meta);
  rl_module_free(module);

  /* Values that the export fixed. */
  module = compile("nested", NULL, NULL);
  OK(rl_module_meta(module, "forward", &meta));
  info = default_info;
  OK(rl_meta_input(meta, 6, &info));
  CHECK(info.value.kind == RL_KIND_STRING && info.value.as.string.size == 3);
  CHECK(memcmp(info.value.as.string.data, "sum", 3) == 0 && strcmp(info.name, "mode") == 0);
  CHECK(info.dim_order == NULL && info.ranges == NULL && !info.is_dynamic);
  rl_meta_free(meta);
  rl_module_free(module);

  /* State, as an attribute. */
  module = load("tests/corpus/1.5.1/counter_initial.pte", NULL);
  OK(rl_module_meta(module, "forward", &meta));
  CHECK(rl_meta_num_attributes(meta) == 1);
  OK(rl_meta_attribute(meta, 0, &info));
  rl_tensor before, after;
  OK(rl_module_attribute(module, "forward", info.name, &before));
  const float zero = floats(before)[0];
  const float ones[3] = {1, 1, 1};
  const int64_t three[] = {3};
  const rl_value input = rl_value_tensor(RL_DTYPE_FLOAT32, three, 1, ones, sizeof ones);
  OK(rl_module_run(module, "forward", &input, 1, NULL, NULL, NULL));
  OK(rl_module_attribute(module, "forward", info.name, &after));
  CHECK(after.rank == 1 && after.sizes[0] == 3 && floats(after)[0] != zero);
  FAILS(rl_module_attribute(module, "forward", "nobody", &after), RL_NOT_FOUND, "nobody");
  rl_meta_free(meta);
  rl_module_free(module);
}

/* -- Names -- */

static void names(void) {
  rl_module *module = compile("keywords", NULL, NULL);
  rl_meta *meta;
  rl_value_info info = RL_VALUE_INFO_INIT;
  OK(rl_module_meta(module, "forward", &meta));
  CHECK(rl_meta_num_inputs(meta) == 5);
  OK(rl_meta_input(meta, 2, &info));
  CHECK(strcmp(info.name, "batch.boxes.0") == 0);
  OK(rl_meta_input(meta, 4, &info));
  CHECK(strcmp(info.name, "scale") == 0 && info.value.kind == RL_KIND_DOUBLE && info.value.as.real == 0.5);
  OK(rl_meta_output(meta, 1, &info));
  CHECK(strcmp(info.name, "stats.mean") == 0);
  rl_meta_free(meta);

  /* The values are eager PyTorch's. */
  const float image[4] = {0.5f, -1, 2, 4}, first[4] = {1, 2, 3, 4}, second[4] = {2, -2, 4, 0.5f};
  const unsigned char mask[2] = {0, 0};
  const int64_t four[] = {4}, two[] = {2};
  const char *names[] = {"batch.boxes.1", "image", "batch.mask", "batch.boxes.0"};
  const rl_value inputs[] = {
      rl_value_tensor(RL_DTYPE_FLOAT32, four, 1, second, sizeof second),
      rl_value_tensor(RL_DTYPE_FLOAT32, four, 1, image, sizeof image),
      rl_value_tensor(RL_DTYPE_BOOL, two, 1, mask, sizeof mask),
      rl_value_tensor(RL_DTYPE_FLOAT32, four, 1, first, sizeof first),
  };
  rl_run_options run = RL_RUN_OPTIONS_INIT;
  run.input_names = names;
  const rl_value *outputs;
  size_t count;
  OK(rl_module_run(module, "forward", inputs, 4, &run, &outputs, &count));
  const float expected[4] = {1.5f, -3, 8, 5};
  CHECK(count == 4 && memcmp(outputs[0].as.tensor.data, expected, sizeof expected) == 0);
  CHECK(floats(outputs[1].as.tensor)[0] == 2.875f);
  names[0] = "batch.boxes.2";
  FAILS(rl_module_run(module, "forward", inputs, 4, &run, NULL, NULL), RL_INVALID_ARGUMENT, "did you mean `batch.boxes.");
  names[0] = "image";
  FAILS(rl_module_run(module, "forward", inputs, 4, &run, NULL, NULL), RL_INVALID_ARGUMENT, "given twice");
  names[0] = NULL;
  FAILS(rl_module_run(module, "forward", inputs, 4, &run, NULL, NULL), RL_INVALID_ARGUMENT, "`input_names[0]` is NULL");
  FAILS(rl_module_run(module, "forward", inputs + 1, 1, &run, NULL, NULL), RL_INVALID_ARGUMENT, "`input_names[0]` is NULL");
  names[0] = "batch.boxes.1";
  FAILS(rl_module_run(module, "forward", inputs, 3, &run, NULL, NULL), RL_INVALID_ARGUMENT, "batch.boxes.0");
  rl_module_free(module);

  /* A method without inputs that returns a number. */
  module = load("tests/corpus/1.5.1/multi_method.pte", NULL);
  OK(rl_module_run(module, "get_max_seq_len", NULL, 0, NULL, &outputs, &count));
  CHECK(count == 1 && outputs[0].kind == RL_KIND_INT && outputs[0].as.integer == 128);
  rl_module_free(module);
}

/* -- Operators of ours -- */

struct twice {
  rl_module *module;
  const void *seen;
  int calls;
  bool fails;
};

static rl_status *twice(rl_kernel_context *context, void *user_data) {
  struct twice *state = (struct twice *)user_data;
  rl_value x;
  rl_tensor out;
  state->calls++;
  if (state->fails) return rl_status_new(RL_OUT_OF_RESOURCES, "twice is too much");
  CHECK(rl_kernel_num_arguments(context) == 2);
  rl_status *status = rl_kernel_argument(context, 0, &x);
  if (status != NULL) return status;
  CHECK(x.kind == RL_KIND_TENSOR);
  FAILS(rl_kernel_argument(context, 1, &x), RL_INVALID_PROGRAM, "argument");
  FAILS(rl_kernel_argument(context, 2, &x), RL_INVALID_ARGUMENT, "no argument 2");
  FAILS(rl_kernel_output(context, 0, NULL, 0, &out), RL_INVALID_PROGRAM, "argument");
  OK(rl_kernel_argument(context, 0, &x));
  status = rl_kernel_output(context, 1, x.as.tensor.sizes, x.as.tensor.rank, &out);
  if (status != NULL) return status;
  FAILS(rl_kernel_output(context, 1, NULL, 0, &out), RL_INVALID_PROGRAM, "argument");
  state->seen = x.as.tensor.data;
  for (size_t i = 0; i < x.as.tensor.nbytes / sizeof(float); i++) floats(out)[i] = 2 * floats(x.as.tensor)[i];
  /* The module is in use by the call that this one is part of. */
  if (state->module != NULL) {
    FAILS(rl_module_run(state->module, "forward", NULL, 0, NULL, NULL, NULL), RL_INVALID_STATE, "in use");
  }
  return NULL;
}

static void count_events(const rl_event *event, void *user_data) {
  int *counts = (int *)user_data;
  CHECK(event->kind <= RL_EVENT_COPY);
  counts[event->begins ? 0 : 1]++;
  if (event->kind == RL_EVENT_OPERATOR && event->name.size == strlen("example::twice.out") &&
      memcmp(event->name.data, "example::twice.out", event->name.size) == 0)
    counts[2]++;
}

static void operators(void) {
  struct twice state = {NULL, NULL, 0, false};
  rl_registry *registry;
  OK(rl_registry_new(&registry));
  rl_operator op = RL_OPERATOR_INIT;
  op.name = "example::twice.out";
  op.num_arguments = 2;
  op.user_data = &state;
  FAILS(rl_registry_add_operator(registry, &op), RL_INVALID_ARGUMENT, "kernel` is NULL");
  op.kernel = twice;
  op.num_arguments = 33;
  FAILS(rl_registry_add_operator(registry, &op), RL_INVALID_ARGUMENT, "33 arguments");
  op.num_arguments = 2;
  op.name = "twice";
  FAILS(rl_registry_add_operator(registry, &op), RL_INVALID_ARGUMENT, "no name of an operator");
  op.name = "example::twice.out";
  OK(rl_registry_add_operator(registry, &op));
  FAILS(rl_registry_add_operator(NULL, &op), RL_INVALID_ARGUMENT, "`registry` is NULL");

  rl_module *module = compile("custom_operator", NULL, NULL);
  rl_status *status = rl_module_load_method(module, "forward");
  CHECK(rl_status_code(status) == RL_OPERATOR_MISSING);
  CHECK(strcmp(rl_status_missing_operator(status, 0), "example::twice.out") == 0);
  CHECK(rl_status_missing_operator(status, 1) == NULL);
  CHECK(strstr(rl_status_text(status), "rl_registry_add_operator") != NULL);
  rl_status_free(status);
  rl_module_free(module);

  /* The model returns `twice(x) + 1`. */
  rl_load_options options = RL_LOAD_OPTIONS_INIT;
  options.registry = registry;
  module = compile("custom_operator", NULL, &options);
  rl_registry_free(registry);
  rl_registry_free(NULL);
  state.module = module;
  const float x[4] = {1, 2, 3, 4}, expected[4] = {3, 5, 7, 9};
  const int64_t four[] = {4};
  const rl_value input = rl_value_tensor(RL_DTYPE_FLOAT32, four, 1, x, sizeof x);
  const rl_value *outputs;
  rl_run_options run = RL_RUN_OPTIONS_INIT;
  int counts[3] = {0, 0, 0};
  run.on_event = count_events;
  run.event_data = counts;
  OK(rl_module_run(module, "forward", &input, 1, &run, &outputs, NULL));
  CHECK(memcmp(outputs[0].as.tensor.data, expected, sizeof expected) == 0);
  CHECK(state.calls == 1 && counts[0] == counts[1] && counts[0] >= 3 && counts[2] == 2);
  /* Outputs are where they were: in the module's memory. */
  const void *before = outputs[0].as.tensor.data;
  OK(rl_module_run(module, "forward", &input, 1, NULL, &outputs, NULL));
  CHECK(outputs[0].as.tensor.data == before);

  state.fails = true;
  status = rl_module_run(module, "forward", &input, 1, NULL, NULL, NULL);
  CHECK(rl_status_code(status) == RL_OUT_OF_RESOURCES);
  CHECK(strcmp(rl_status_message(status), "twice is too much") == 0);
  CHECK(strstr(rl_status_site(status), "example::twice.out") != NULL);
  rl_status_free(status);
  state.fails = false;
  OK(rl_module_run(module, "forward", &input, 1, NULL, NULL, NULL));

  /* Interrupts. */
  rl_interrupt *interrupt;
  OK(rl_interrupt_new(&interrupt));
  run = default_run;
  run.interrupt = interrupt;
  OK(rl_module_run(module, "forward", &input, 1, &run, NULL, NULL));
  rl_interrupt_set(interrupt, true);
  FAILS(rl_module_run(module, "forward", &input, 1, &run, NULL, NULL), RL_INVALID_STATE, "cancelled");
  rl_interrupt_set(interrupt, false);
  OK(rl_module_run(module, "forward", &input, 1, &run, NULL, NULL));
  rl_interrupt_set(NULL, true);
  rl_interrupt_free(interrupt);
  rl_interrupt_free(NULL);
  rl_module_free(module);
}

/* -- Nothing is copied: tensors are where the caller put them. The model returns x * y + 1, x, and both behind each other -- */

static rl_status *mul(rl_kernel_context *context, void *user_data) {
  const void **seen = (const void **)user_data;
  rl_value x, y;
  rl_tensor out;
  OK(rl_kernel_argument(context, 0, &x));
  OK(rl_kernel_argument(context, 1, &y));
  OK(rl_kernel_output(context, 2, NULL, 0, &out));
  seen[0] = x.as.tensor.data;
  seen[1] = y.as.tensor.data;
  for (int i = 0; i < 6; i++) floats(out)[i] = floats(x.as.tensor)[i] * floats(y.as.tensor)[i];
  return NULL;
}

static void addresses(void) {
  const void *seen[2] = {NULL, NULL};
  rl_registry *registry;
  rl_operator op = RL_OPERATOR_INIT;
  op.name = "aten::mul.out";
  op.num_arguments = 3;
  op.kernel = mul;
  op.user_data = seen;
  OK(rl_registry_new(&registry));
  OK(rl_registry_add_operator(registry, &op));
  rl_load_options options = RL_LOAD_OPTIONS_INIT;
  options.lower = "off";
  options.registry = registry;
  rl_module *module = load("tests/corpus/1.5.1/unplanned.pte", &options);
  rl_registry_free(registry);
  const int64_t sizes[] = {2, 3};
  const float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {2, 2, 2, 2, 2, 2};
  const rl_value inputs[2] = {rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 2, x, sizeof x),
                              rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 2, y, sizeof y)};
  const rl_value *outputs;
  size_t count;
  OK(rl_module_run(module, "forward", inputs, 2, NULL, &outputs, &count));
  CHECK(seen[0] == x && seen[1] == y);
  CHECK(count == 3 && outputs[1].as.tensor.data == x);
  for (int i = 0; i < 6; i++) {
    CHECK(floats(outputs[0].as.tensor)[i] == 2 * x[i] + 1);
    CHECK(floats(outputs[2].as.tensor)[i] == x[i] && floats(outputs[2].as.tensor)[i + 6] == 2);
  }
  rl_module_free(module);
}

/* -- A backend of ours, in place of XNNPACK's -- */

struct backend_calls {
  int made, destroyed;
  bool fails;
};

static rl_status *init(const rl_init_context *context, void *user_data, void **delegate, size_t *num_outputs) {
  struct backend_calls *calls = (struct backend_calls *)user_data;
  const rl_string method = rl_init_method(context);
  CHECK(method.size == 7 && memcmp(method.data, "forward", 7) == 0);
  CHECK(rl_init_payload(context).data != NULL && rl_init_payload(context).size > 0);
  CHECK(rl_init_compile_spec(context, "no such spec").data == NULL);
  CHECK(rl_init_named_data(context, "no such data").data == NULL && rl_init_named_data(context, NULL).data == NULL);
  if (calls->fails) return rl_status_new(RL_DELEGATE_INVALID_COMPATIBILITY, "a payload of another version");
  calls->made++;
  *delegate = malloc(1);
  *num_outputs = 1;
  return NULL;
}

static rl_status *execute(void *delegate, rl_delegate_context *context, void *user_data) {
  rl_value input;
  rl_tensor output;
  CHECK(delegate != NULL && user_data != NULL && rl_delegate_num_inputs(context) == 1);
  OK(rl_delegate_check(context));
  OK(rl_delegate_input(context, 0, &input));
  FAILS(rl_delegate_input(context, 1, &input), RL_INVALID_ARGUMENT, "1");
  OK(rl_delegate_output(context, 0, NULL, 0, &output));
  FAILS(rl_delegate_output(context, 0, NULL, 0, &output), RL_INVALID_PROGRAM, "");
  float sum = 0;
  for (int i = 0; i < 6; i++) sum += floats(input.as.tensor)[i];
  for (int i = 0; i < 2; i++) floats(output)[i] = sum * (float)(i + 1);
  return NULL;
}

static void destroy(void *delegate, void *user_data) {
  ((struct backend_calls *)user_data)->destroyed++;
  free(delegate);
}

static void backends(void) {
  struct backend_calls calls = {0, 0, false};
  rl_registry *registry;
  rl_backend backend = RL_BACKEND_INIT;
  OK(rl_registry_new(&registry));
  backend.name = "XnnpackBackend";
  backend.execute = execute;
  backend.destroy = destroy;
  backend.user_data = &calls;
  FAILS(rl_registry_add_backend(registry, &backend), RL_INVALID_ARGUMENT, "init` is NULL");
  backend.init = init;
  OK(rl_registry_add_backend(registry, &backend));
  rl_load_options options = RL_LOAD_OPTIONS_INIT;
  options.registry = registry;
  options.lower = "off";
  rl_module *module = load("tests/corpus/1.5.1/xnnpack.pte", &options);
  const float x[6] = {1, 2, 3, 4, 5, 6};
  const int64_t sizes[] = {1, 6};
  const rl_value input = rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 2, x, sizeof x);
  const rl_value *outputs;
  OK(rl_module_run(module, "forward", &input, 1, NULL, &outputs, NULL));
  CHECK(floats(outputs[0].as.tensor)[0] == 21 && floats(outputs[0].as.tensor)[1] == 42);
  rl_module_free(module);
  CHECK(calls.made == 1 && calls.destroyed == 1);
  calls.fails = true;
  module = load("tests/corpus/1.5.1/xnnpack.pte", &options);
  FAILS(rl_module_load_method(module, "forward"), RL_DELEGATE_INVALID_COMPATIBILITY, "another version");
  rl_module_free(module);
  CHECK(calls.made == 1 && calls.destroyed == 1);
  rl_registry_free(registry);
}

/* -- Compiling -- */

static void on_progress(rl_string stage, uint64_t done, uint64_t total, void *user_data) {
  CHECK(stage.size > 0 && (total == 0 || done <= total));
  *(int *)user_data += 1;
}

static void compiling(const char *folder) {
  rl_program *program = NULL;
  const char *source = path_of(root, "examples/cortex-m/digits.pt2");
  size_t size;
  void *bytes = read_whole(source, &size);
  const rl_exported exported = {"forward", NULL, bytes, size};
  rl_compile_options options = RL_COMPILE_OPTIONS_INIT;
  const char *backends[] = {"cpu"};
  int reports = 0;
  rl_interrupt *interrupt;
  OK(rl_interrupt_new(&interrupt));
  options.backends = backends;
  options.num_backends = 1;
  options.on_progress = on_progress;
  options.progress_data = &reports;
  options.interrupt = interrupt;
  OK(rl_compile(&exported, 1, &options, &program));
  free(bytes);
  const char *path = path_of(folder, "digits.pte");
  OK(rl_program_save(program, path));
  CHECK(reports > 0);
  FAILS(rl_program_save(program, path_of(folder, "no/such/folder.pte")), RL_ACCESS_FAILED, "no/such");
  rl_bytes written, saved;
  OK(rl_program_bytes(program, &written));
  void *file = read_whole(path, &saved.size);
  CHECK(saved.size == written.size && memcmp(file, written.data, saved.size) == 0);
  free(file);
  rl_program_free(program);
  rl_program_free(NULL);
  rl_module *module;
  OK(rl_module_load(path, NULL, &module));
  OK(rl_module_load_method(module, "forward"));
  rl_module_free(module);

  const rl_exported from_file = {"forward", source, NULL, 0};
  rl_interrupt_set(interrupt, true);
  FAILS(rl_compile(&from_file, 1, &options, &program), RL_INVALID_STATE, "cancelled");
  rl_interrupt_free(interrupt);
  options = default_compile;
  options.quantize = "int5";
  FAILS(rl_compile(&from_file, 1, &options, &program), RL_INVALID_ARGUMENT, "int5");
  options.quantize = "int8-weight";
  OK(rl_compile(&from_file, 1, &options, &program));
  FAILS(rl_program_save(program, source), RL_INVALID_ARGUMENT, "digits.pt2");
  rl_program_free(program);
  options.quantize = NULL;
  backends[0] = "tpu";
  options.backends = backends;
  options.num_backends = 1;
  FAILS(rl_compile(&from_file, 1, &options, &program), RL_NOT_FOUND, "tpu");
  FAILS(rl_compile(NULL, 0, NULL, &program), RL_INVALID_ARGUMENT, "nothing to compile");
  FAILS(rl_compile(&from_file, 1, NULL, NULL), RL_INVALID_ARGUMENT, "`program` is NULL");
  const rl_exported two[2] = {from_file, from_file};
  FAILS(rl_compile(two, 2, NULL, &program), RL_INVALID_ARGUMENT, "forward");
}

/* -- Sessions: two users of one module, a small Llama whose answers are transformers' -- */

static rl_module *load_llama(const char *path) {
  const rl_exported folder_of_model = {NULL, path_of(root, "tests/decoders/llama"), NULL, 0};
  const char *backend = "cpu";
  rl_compile_options options = RL_COMPILE_OPTIONS_INIT;
  rl_program *program;
  rl_module *module;
  options.backends = &backend;
  options.num_backends = 1;
  options.max_context_len = 80;
  OK(rl_compile(&folder_of_model, 1, &options, &program));
  OK(rl_program_save(program, path));
  rl_program_free(program);
  OK(rl_module_load(path, NULL, &module));
  return module;
}

/* The token that follows those at a position. */
static uint32_t following(rl_module *module, rl_session *session, int64_t position, const uint32_t *tokens, size_t count) {
  int64_t wide[8];
  const int64_t sizes[] = {1, (int64_t)count}, one[] = {1};
  CHECK(count <= 8);
  for (size_t i = 0; i < count; i++) wide[i] = tokens[i];
  const rl_value inputs[2] = {rl_value_tensor(RL_DTYPE_INT64, sizes, 2, wide, count * sizeof *wide),
                              rl_value_tensor(RL_DTYPE_INT64, one, 1, &position, sizeof position)};
  rl_run_options run = RL_RUN_OPTIONS_INIT;
  const rl_value *outputs;
  run.session = session;
  OK(rl_module_run(module, "forward", inputs, 2, &run, &outputs, NULL));
  const float *logits = floats(outputs[0].as.tensor);
  uint32_t best = 0;
  for (uint32_t i = 1; i < outputs[0].as.tensor.nbytes / sizeof(float); i++)
    if (logits[i] > logits[best]) best = i;
  return best;
}

static void sessions(const char *folder) {
  const size_t count = sizeof llama_prompt / sizeof *llama_prompt;
  rl_load_options off = RL_LOAD_OPTIONS_INIT;
  off.lower = "off";
  rl_session *one, *other, *fork;
  rl_module *plain = load("tests/corpus/1.5.1/counter_initial.pte", &off);
  FAILS(rl_session_new(plain, &one), RL_NOT_SUPPORTED, "memory of the method");
  rl_module *module = load_llama(path_of(folder, "llama.pte"));
  OK(rl_session_new(module, &one));
  OK(rl_session_new(module, &other));
  CHECK(following(module, one, 0, llama_prompt, count) == llama_greedy[0]);
  CHECK(following(module, other, 0, llama_prompt, 3) != llama_greedy[0]);
  CHECK(following(module, one, (int64_t)count, llama_greedy, 1) == llama_greedy[1]);
  CHECK(following(module, other, 3, llama_prompt + 3, count - 3) == llama_greedy[0]);
  OK(rl_session_fork(other, &fork));
  CHECK(following(module, fork, (int64_t)count, llama_greedy, 2) == llama_greedy[2]);
  OK(rl_session_rewind(fork, count));
  CHECK(following(module, fork, (int64_t)count, llama_greedy, 1) == llama_greedy[1]);
  OK(rl_session_clear(one));
  CHECK(following(module, one, 0, llama_prompt, count) == llama_greedy[0]);
  rl_run_options run = RL_RUN_OPTIONS_INIT;
  run.session = one;
  const float ones[3] = {1, 1, 1};
  const int64_t three[] = {3};
  const rl_value input = rl_value_tensor(RL_DTYPE_FLOAT32, three, 1, ones, sizeof ones);
  FAILS(rl_module_run(plain, "forward", &input, 1, &run, NULL, NULL), RL_INVALID_ARGUMENT, "another module");
  rl_module_free(plain);
  rl_session_free(one);
  rl_session_free(fork);
  rl_module_free(module);
  rl_session_free(other);
  rl_session_free(NULL);
}

/* -- DLPack: the structures of dlpack.h -- */

struct dl_tensor {
  void *data;
  int32_t device_type, device_id, ndim;
  struct { uint8_t code, bits; uint16_t lanes; } dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};

struct DLManagedTensorVersioned {
  struct { uint32_t major, minor; } version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *);
  uint64_t flags;
  struct dl_tensor dl_tensor;
};

static void dlpack(void) {
  float numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  int64_t shape[] = {2, 3}, strides[] = {1, 2}, negative[] = {-1, 2};
  struct DLManagedTensorVersioned managed;
  memset(&managed, 0, sizeof managed);
  managed.version.major = 1;
  managed.dl_tensor.data = numbers;
  managed.dl_tensor.device_type = 1;
  managed.dl_tensor.ndim = 2;
  managed.dl_tensor.dtype.code = 2;
  managed.dl_tensor.dtype.bits = 32;
  managed.dl_tensor.dtype.lanes = 1;
  managed.dl_tensor.shape = shape;
  managed.dl_tensor.strides = strides;
  managed.dl_tensor.byte_offset = sizeof(float);
  rl_tensor view;
  OK(rl_tensor_from_dlpack(&managed, &view));
  CHECK(view.data == numbers + 1 && view.sizes == shape && view.strides == strides && view.rank == 2);
  CHECK(view.dtype == RL_DTYPE_FLOAT32 && view.nbytes == 6 * sizeof(float));

  struct DLManagedTensorVersioned *copy = NULL;
  OK(rl_tensor_to_dlpack(&view, &copy));
  const float row_major[6] = {1, 3, 5, 2, 4, 6};
  CHECK(copy->version.major == 1 && copy->dl_tensor.ndim == 2 && copy->dl_tensor.strides == NULL);
  CHECK(copy->dl_tensor.shape[0] == 2 && copy->dl_tensor.shape[1] == 3 && copy->dl_tensor.dtype.bits == 32);
  CHECK(memcmp(copy->dl_tensor.data, row_major, sizeof row_major) == 0);
  copy->deleter(copy);

  managed.dl_tensor.strides = negative;
  FAILS(rl_tensor_from_dlpack(&managed, &view), RL_NOT_SUPPORTED, "negative strides");
  managed.dl_tensor.strides = NULL;
  OK(rl_tensor_from_dlpack(&managed, &view));
  CHECK(view.strides == NULL && view.nbytes == 6 * sizeof(float));
  managed.dl_tensor.dtype.lanes = 4;
  FAILS(rl_tensor_from_dlpack(&managed, &view), RL_INVALID_TYPE, "4 lanes");
  managed.dl_tensor.device_type = 2;
  FAILS(rl_tensor_from_dlpack(&managed, &view), RL_NOT_SUPPORTED, "device type 2");
  managed.version.major = 2;
  FAILS(rl_tensor_from_dlpack(&managed, &view), RL_NOT_SUPPORTED, "DLPack 2.0");
  FAILS(rl_tensor_from_dlpack(NULL, &view), RL_INVALID_ARGUMENT, "`managed` is NULL");
  FAILS(rl_tensor_to_dlpack(NULL, &copy), RL_INVALID_ARGUMENT, "`tensor` is NULL");
}

/* -- Language models: a small Llama, whose answer is transformers' -- */

struct answer {
  char text[256];
  size_t size;
  size_t end;
};

static bool on_text(rl_string text, void *user_data) {
  struct answer *answer = (struct answer *)user_data;
  CHECK(answer->size + text.size < sizeof answer->text);
  memcpy(answer->text + answer->size, text.data, text.size);
  answer->size += text.size;
  return answer->size < answer->end;
}

struct tokens {
  size_t count;
  size_t wrong;
};

/* Counts tokens, and those that are not the most likely ones. */
static bool on_token(const rl_llm_token *token, void *user_data) {
  struct tokens *tokens = (struct tokens *)user_data;
  tokens->count++;
  tokens->wrong += token->num_top != 2 || token->top_tokens[0] != token->token ||
                   token->top_log_probabilities[0] != token->log_probability || token->log_probability > 0;
  return true;
}

static void language_models(const char *folder) {
  const char *path = path_of(folder, "llama.pte");

  /* The number of tokens is dynamic, with a range. */
  rl_module *module = load_llama(path);
  rl_meta *meta;
  rl_value_info info = RL_VALUE_INFO_INIT;
  OK(rl_module_meta(module, "forward", &meta));
  rl_module_free(module);
  OK(rl_meta_input(meta, 0, &info));
  CHECK(info.is_dynamic && info.ranges != NULL && info.value.as.tensor.rank == 2);
  CHECK(info.ranges[0].min == 1 && info.ranges[0].max == 1);
  CHECK(info.ranges[1].min == 1 && info.ranges[1].max == 80 && info.ranges[1].unit == 1);
  CHECK(info.ranges[1].offset == 0 && info.ranges[1].expression == NULL);
  rl_meta_free(meta);

  rl_llm *llm;
  rl_llm_session *session;
  FAILS(rl_llm_load(path_of(root, "tests/corpus/1.5.1/add.pte"), NULL, NULL, &llm), RL_NOT_FOUND, "tokenizer");
  FAILS(rl_llm_load(path_of(root, "tests/corpus/1.5.1/add.pte"), path, NULL, &llm), RL_INVALID_PROGRAM, "no language model");
  OK(rl_llm_load(path, NULL, NULL, &llm));
  OK(rl_llm_session_new(llm, &session));

  const char *prompt = LLAMA_PROMPT;
  const rl_string text = rl_value_string(prompt).as.string;
  const uint32_t *tokens;
  size_t count, position;
  OK(rl_llm_encode(llm, text, false, &tokens, &count));
  CHECK(count == sizeof llama_prompt / sizeof *llama_prompt);
  CHECK(memcmp(tokens, llama_prompt, sizeof llama_prompt) == 0);
  rl_string decoded;
  OK(rl_llm_decode(llm, llama_greedy, 16, &decoded));
  CHECK(decoded.size == 16 && memcmp(decoded.data, LLAMA_GREEDY, 16) == 0);

  struct answer answer = {{0}, 0, 1000};
  rl_llm_generate_options options = RL_LLM_GENERATE_OPTIONS_INIT;
  rl_llm_usage usage = RL_LLM_USAGE_INIT;
  CHECK(options.temperature > 0.79f && options.temperature < 0.81f && options.top_p > 0.94f && options.top_k == 40);
  options.max_new_tokens = 16;
  options.temperature = 0;
  options.on_text = on_text;
  options.text_data = &answer;
  OK(rl_llm_encode(llm, text, false, &tokens, &count));
  OK(rl_llm_generate(llm, session, tokens, count, &options, &usage));
  CHECK(answer.size == 16 && memcmp(answer.text, LLAMA_GREEDY, 16) == 0);
  CHECK(usage.generated_tokens == 16 && usage.prompt_tokens == count && usage.finish == RL_LLM_FINISH_LENGTH);
  CHECK(usage.prefill_ns > 0 && usage.decode_ns > 0);
  OK(rl_llm_session_position(session, &position));
  CHECK(position == count + 15);

  /* Back to the prompt, and again, until the callback ends it. */
  OK(rl_llm_session_reset(llm, session));
  answer.size = 0;
  answer.end = 4;
  OK(rl_llm_generate(llm, session, llama_prompt, count, &options, &usage));
  CHECK(answer.size == 4 && usage.finish == RL_LLM_FINISH_CANCELLED);
  OK(rl_llm_session_rewind(llm, session, 3));
  OK(rl_llm_session_position(session, &position));
  CHECK(position == 3);
  FAILS(rl_llm_session_rewind(llm, session, 50), RL_INVALID_STATE, "50");
  const char *stop = "Sn";
  options.stop = &stop;
  options.num_stop = 1;
  answer.size = 0;
  answer.end = 1000;
  OK(rl_llm_generate(llm, session, llama_prompt + 3, count - 3, &options, &usage));
  CHECK(usage.finish == RL_LLM_FINISH_STOP && answer.size == 5 && memcmp(answer.text, LLAMA_GREEDY, 5) == 0);

  /* Options by name, which replace the fields. */
  const rl_option named[] = {{"logprobs", "2"}, {"temperature", "0"}, {"stop", NULL}, {"max_new_tokens", "4"}};
  const rl_option greedy_regex[] = {{"temperature", "0"}, {"regex", "[a-c]{3}"}};
  struct tokens scores = {0, 0};
  options.temperature = 2;
  options.named = named;
  options.num_named = 4;
  options.on_token = on_token;
  options.token_data = &scores;
  answer.size = 0;
  OK(rl_llm_session_reset(llm, session));
  OK(rl_llm_generate(llm, session, llama_prompt, count, &options, &usage));
  CHECK(answer.size == 4 && memcmp(answer.text, LLAMA_GREEDY, 4) == 0 && scores.count == 4 && scores.wrong == 0);
  options.named = greedy_regex;
  options.num_named = 2;
  answer.size = 0;
  OK(rl_llm_session_reset(llm, session));
  OK(rl_llm_generate(llm, session, llama_prompt, count, &options, &usage));
  CHECK(answer.size == 3 && answer.text[0] >= 'a' && answer.text[2] <= 'c' && usage.finish == RL_LLM_FINISH_STOP);
  const rl_option wrong[] = {{"top_kk", "4"}, {"min_p", "2"}, {"json_schema", "{"}, {NULL, NULL}};
  const char *messages[] = {"top_k", "min_p", "json_schema", "NULL"};
  for (size_t i = 0; i < 4; i++) {
    options.named = wrong + i;
    options.num_named = 1;
    FAILS(rl_llm_generate(llm, session, llama_prompt, count, &options, &usage), RL_INVALID_ARGUMENT, messages[i]);
  }
  FAILS(rl_llm_set_adapter(llm, "missing", 1), RL_NOT_SUPPORTED, "lora");
  OK(rl_llm_set_adapter(llm, NULL, 1));

  /* Logits, and a session that goes on by itself. */
  const float *logits;
  size_t num_logits;
  rl_llm_session *fork;
  OK(rl_llm_session_reset(llm, session));
  OK(rl_llm_prefill(llm, session, llama_prompt, 3, NULL, NULL));
  OK(rl_llm_prefill(llm, session, llama_prompt + 3, count - 3, &logits, &num_logits));
  CHECK(num_logits == sizeof llama_logits / sizeof *llama_logits);
  for (size_t i = 0; i < num_logits; i++) CHECK(is_near(logits[i], llama_logits[i], 2e-5));
  OK(rl_llm_session_fork(session, &fork));
  OK(rl_llm_prefill(llm, fork, llama_greedy, 1, NULL, NULL));
  OK(rl_llm_session_position(fork, &position));
  CHECK(position == count + 1);
  OK(rl_llm_session_position(session, &position));
  CHECK(position == count);
  FAILS(rl_llm_prefill(llm, session, NULL, 0, NULL, NULL), RL_INVALID_ARGUMENT, "");
  rl_llm_session_free(fork);

  options = default_generate;
  options.temperature = -1;
  FAILS(rl_llm_generate(llm, session, llama_prompt, 1, &options, NULL), RL_INVALID_ARGUMENT, "temperature");
  options.temperature = 0;
  uint32_t unknown = 1000;
  FAILS(rl_llm_generate(llm, session, &unknown, 1, &options, NULL), RL_INVALID_ARGUMENT, "1000");
  uint32_t many[100] = {0};
  FAILS(rl_llm_generate(llm, session, many, 100, &options, NULL), RL_OUT_OF_RESOURCES, "");
  const rl_llm_message message = {"user", "lN"};
  /* The template of tokenizer_config.json: `role: content. ` of each message, and whose turn it is. */
  const char *expected = "user: lN. assistant: ";
  OK(rl_llm_chat_prompt(llm, &message, 1, &decoded));
  CHECK(decoded.size == strlen(expected) && memcmp(decoded.data, expected, decoded.size) == 0);
  OK(rl_llm_encode(llm, decoded, false, &tokens, &count));
  FAILS(rl_llm_chat_prompt(NULL, &message, 1, &decoded), RL_INVALID_ARGUMENT, "`llm` is NULL");
  rl_llm_session_free(session);
  rl_llm_session_free(NULL);
  rl_llm_free(llm);
  rl_llm_free(NULL);
}

/* -- NULL in every place -- */

static void nulls(void) {
  const uint32_t code = RL_INVALID_ARGUMENT;
  FAILS(rl_interrupt_new(NULL), code, "NULL");
  FAILS(rl_module_load_bytes(NULL, 0, NULL, NULL), code, "NULL");
  FAILS(rl_module_load_borrowed(NULL, 0, NULL, NULL, NULL, NULL), code, "NULL");
  FAILS(rl_module_meta(NULL, "x", NULL), code, "NULL");
  FAILS(rl_module_load_method(NULL, "x"), code, "NULL");
  FAILS(rl_module_unload_method(NULL, "x"), code, "NULL");
  FAILS(rl_module_set_option(NULL, NULL), code, "NULL");
  FAILS(rl_module_attribute(NULL, "x", "y", NULL), code, "NULL");
  FAILS(rl_module_run(NULL, NULL, NULL, 0, NULL, NULL, NULL), code, "NULL");
  FAILS(rl_session_new(NULL, NULL), code, "NULL");
  FAILS(rl_session_clear(NULL), code, "NULL");
  FAILS(rl_session_rewind(NULL, 0), code, "NULL");
  FAILS(rl_session_fork(NULL, NULL), code, "NULL");
  FAILS(rl_module_limits(NULL, NULL, NULL), code, "NULL");
  FAILS(rl_session_save(NULL, NULL, NULL), code, "NULL");
  FAILS(rl_session_restore(NULL, NULL, 0), code, "NULL");
  FAILS(rl_meta_output(NULL, 0, NULL), code, "NULL");
  FAILS(rl_meta_attribute(NULL, 0, NULL), code, "NULL");
  FAILS(rl_registry_new(NULL), code, "NULL");
  FAILS(rl_registry_add_operator(NULL, NULL), code, "NULL");
  FAILS(rl_registry_add_backend(NULL, NULL), code, "NULL");
  FAILS(rl_kernel_argument(NULL, 0, NULL), code, "NULL");
  FAILS(rl_kernel_output(NULL, 0, NULL, 0, NULL), code, "NULL");
  FAILS(rl_delegate_input(NULL, 0, NULL), code, "NULL");
  FAILS(rl_delegate_output(NULL, 0, NULL, 0, NULL), code, "NULL");
  FAILS(rl_delegate_check(NULL), code, "NULL");
  FAILS(rl_delegate_begin(NULL, NULL), code, "NULL");
  FAILS(rl_delegate_end(NULL, NULL), code, "NULL");
  FAILS(rl_delegate_timed(NULL, NULL, 0, 0), code, "NULL");
  FAILS(rl_init_option(NULL, NULL, NULL), code, "NULL");
  CHECK(rl_delegate_state(NULL, 0) == NULL && rl_delegate_buffer(NULL, 0) == NULL && !rl_delegate_has_tracer(NULL));
  FAILS(rl_program_bytes(NULL, NULL), code, "NULL");
  FAILS(rl_program_save(NULL, NULL), code, "NULL");
  FAILS(rl_tensor_to_dlpack(NULL, NULL), code, "NULL");
  FAILS(rl_llm_load(NULL, NULL, NULL, NULL), code, "NULL");
  FAILS(rl_llm_set_adapter(NULL, NULL, 1), code, "NULL");
  FAILS(rl_llm_encode(NULL, rl_value_string("").as.string, true, NULL, NULL), code, "NULL");
  FAILS(rl_llm_decode(NULL, NULL, 0, NULL), code, "NULL");
  FAILS(rl_llm_session_new(NULL, NULL), code, "NULL");
  FAILS(rl_llm_session_reset(NULL, NULL), code, "NULL");
  FAILS(rl_llm_session_rewind(NULL, NULL, 0), code, "NULL");
  FAILS(rl_llm_session_position(NULL, NULL), code, "NULL");
  FAILS(rl_llm_session_fork(NULL, NULL), code, "NULL");
  FAILS(rl_llm_prefill(NULL, NULL, NULL, 0, NULL, NULL), code, "NULL");
  FAILS(rl_llm_generate(NULL, NULL, NULL, 0, NULL, NULL), code, "NULL");
  CHECK(rl_module_method(NULL, 0) == NULL && rl_meta_name(NULL) == NULL);
  CHECK(rl_meta_num_inputs(NULL) == 0 && rl_meta_num_outputs(NULL) == 0 && rl_meta_num_attributes(NULL) == 0);
  CHECK(rl_meta_backend(NULL, 0) == NULL && rl_meta_operator(NULL, 0) == NULL);
  CHECK(rl_meta_num_planned_buffers(NULL) == 0 && rl_meta_planned_buffer_size(NULL, 0) == 0);
  CHECK(rl_meta_num_instructions(NULL) == 0 && rl_kernel_num_arguments(NULL) == 0 && rl_delegate_num_inputs(NULL) == 0);
  CHECK(rl_init_method(NULL).size == 0 && rl_init_payload(NULL).data == NULL);
  CHECK(rl_value_string(NULL).kind == RL_KIND_NONE);
}

int main(int argc, char **argv) {
  CHECK(argc == 3); /* The repository, and a folder for files. */
  root = argv[1];
  statuses();
  nulls();
  recorded_programs();
  wrong_inputs();
  loading();
  descriptions();
  names();
  operators();
  addresses();
  backends();
  compiling(argv[2]);
  sessions(argv[2]);
  dlpack();
  language_models(argv[2]);
  printf("every function of the C ABI\n");
  return 0;
}
