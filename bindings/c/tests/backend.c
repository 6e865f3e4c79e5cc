/* A backend with options, states, events and a device, in place of XNNPACK's. It sums its inputs. The library or the backend
 * keeps its states. Its values are in the host's memory, or in that of a simulated device, which completes a call after some
 * polls. */
#include "check.h"

static const char *root;

enum { WIDTH = 6 };

struct npu {
  bool has_device, has_timestamps;
  int delegates, states, buffers;
  int writes, reads, polls, waits;
  const char *read_fails;
};

struct delegate {
  struct npu *npu;
  int64_t scale;
  /* Polls after which the submitted call is complete. */
  int polls_left;
};

struct buffer {
  float *data;
  size_t bytes;
  bool is_reading;
};

/* -- The delegate -- */

static rl_status *init(const rl_init_context *context, void *user_data, void **delegate, size_t *num_outputs) {
  struct npu *npu = (struct npu *)user_data;
  struct delegate *made = (struct delegate *)calloc(1, sizeof *made);
  rl_value value;
  OK(rl_init_option(context, "scale", &value));
  CHECK(value.kind == RL_KIND_INT);
  made->npu = npu;
  made->scale = value.as.integer;
  OK(rl_init_option(context, "mode", &value));
  CHECK(value.kind == RL_KIND_STRING && value.as.string.size == 5 && memcmp(value.as.string.data, "exact", 5) == 0);
  FAILS(rl_init_option(context, "depth", &value), RL_INVALID_ARGUMENT, "declares no option `depth`");
  FAILS(rl_init_option(context, "mode", NULL), RL_INVALID_ARGUMENT, "NULL");
  npu->delegates++;
  *delegate = made;
  *num_outputs = 1;
  return NULL;
}

static void destroy(void *delegate, void *user_data) {
  ((struct npu *)user_data)->delegates--;
  free(delegate);
}

static void compute(const struct delegate *delegate, const float *x, float *y, float *total) {
  for (int i = 0; i < WIDTH; i++) *total += x[i] * (float)delegate->scale;
  for (int i = 0; i < 2; i++) y[i] = *total * (float)(i + 1);
}

/* The sum of earlier calls: a state of bytes that the library keeps, or the first field of the state that `create` made. */
static float *total_of(rl_delegate_context *context) {
  float *total = (float *)rl_delegate_state(context, 0);
  CHECK(total != NULL && rl_delegate_state(context, 1) == NULL);
  return total;
}

static void report(const rl_delegate_context *context, bool has_timestamps) {
  rl_delegate_event event = RL_DELEGATE_EVENT_INIT;
  FAILS(rl_delegate_begin(context, &event), RL_INVALID_ARGUMENT, "name` is empty");
  event.name.data = "accumulate";
  event.name.size = 10;
  event.step = 0;
  event.has_cost = 1;
  event.flops = 2 * WIDTH;
  event.bytes = 4 * WIDTH;
  OK(rl_delegate_begin(context, &event));
  OK(rl_delegate_end(context, &event));
  if (has_timestamps) OK(rl_delegate_timed(context, &event, 100, 250));
}

static rl_status *execute(void *delegate, rl_delegate_context *context, void *user_data) {
  struct delegate *self = (struct delegate *)delegate;
  rl_value input;
  rl_tensor output;
  CHECK(self->npu == user_data);
  if (self->npu->has_device) {
    /* Submitted: the device computes when it is polled. */
    CHECK(self->polls_left == 0 && rl_delegate_buffer(context, 2) == NULL);
    self->polls_left = 2;
    return NULL;
  }
  CHECK(rl_delegate_buffer(context, 0) == NULL);
  OK(rl_delegate_input(context, 0, &input));
  OK(rl_delegate_output(context, 0, NULL, 0, &output));
  if (rl_delegate_has_tracer(context)) report(context, self->npu->has_timestamps);
  compute(self, floats(input.as.tensor), floats(output), total_of(context));
  return NULL;
}

static rl_status *set_option(void *delegate, const char *name, const rl_value *value, void *user_data) {
  struct delegate *self = (struct delegate *)delegate;
  CHECK(user_data != NULL && strcmp(name, "scale") == 0 && value->kind == RL_KIND_INT);
  if (value->as.integer < 0) return rl_status_new(RL_INVALID_ARGUMENT, "a negative scale");
  self->scale = value->as.integer;
  return NULL;
}

static bool measure(void *user_data, double *flop_rate, double *byte_rate) {
  *flop_rate = 2e9;
  *byte_rate = 1e9;
  return user_data != NULL;
}

/* -- States -- */

static bool describe(void *delegate, size_t index, void *user_data, rl_state_info *info) {
  CHECK(delegate != NULL && user_data != NULL);
  info->key = "total";
  info->bytes = sizeof(float);
  return index == 0;
}

struct total {
  float sum;
};

static rl_status *create(void *delegate, size_t index, void *user_data, void **state) {
  CHECK(delegate != NULL && index == 0);
  ((struct npu *)user_data)->states++;
  *state = calloc(1, sizeof(struct total));
  return NULL;
}

static void destroy_state(void *state, void *user_data) {
  ((struct npu *)user_data)->states--;
  free(state);
}

static rl_status *clear(void *state, void *user_data) {
  (void)user_data;
  ((struct total *)state)->sum = 0;
  return NULL;
}

static rl_status *rewind_state(void *state, size_t length, void *user_data) {
  (void)user_data;
  if (length > 0) return rl_status_new(RL_NOT_SUPPORTED, "only the beginning is known");
  ((struct total *)state)->sum = 0;
  return NULL;
}

static rl_status *fork_state(void *state, void *user_data, void **copy) {
  OK(create(state, 0, user_data, copy));
  *(struct total *)*copy = *(struct total *)state;
  return NULL;
}

static rl_status *save(void *state, rl_write_fn write, void *write_data, void *user_data) {
  CHECK(user_data != NULL);
  write(state, 1, write_data);
  write((char *)state + 1, sizeof(struct total) - 1, write_data);
  return NULL;
}

static rl_status *restore(void *state, const void *data, size_t size, void *user_data) {
  CHECK(user_data != NULL);
  if (size != sizeof(struct total)) return rl_status_new(RL_INVALID_EXTERNAL_DATA, "a total of another size");
  memcpy(state, data, size);
  return NULL;
}

/* -- The device -- */

static int64_t memory(void *delegate, size_t argument, void *user_data) {
  CHECK(delegate != NULL && user_data != NULL && argument < 2);
  return 0;
}

static rl_status *allocate(void *delegate, size_t bytes, void *user_data, void **buffer) {
  struct buffer *made = (struct buffer *)calloc(1, sizeof *made);
  CHECK(delegate != NULL);
  made->data = (float *)malloc(bytes);
  made->bytes = bytes;
  ((struct npu *)user_data)->buffers++;
  *buffer = made;
  return NULL;
}

static void free_buffer(void *buffer, void *user_data) {
  ((struct npu *)user_data)->buffers--;
  free(((struct buffer *)buffer)->data);
  free(buffer);
}

static rl_status *write_buffer(void *buffer, const void *data, size_t size, void *user_data) {
  struct buffer *to = (struct buffer *)buffer;
  CHECK(size <= to->bytes);
  memcpy(to->data, data, size);
  ((struct npu *)user_data)->writes++;
  return NULL;
}

static rl_status *read_buffer(void *buffer, void *data, size_t size, void *user_data, bool *is_pending) {
  struct buffer *from = (struct buffer *)buffer;
  struct npu *npu = (struct npu *)user_data;
  CHECK(size <= from->bytes);
  if (npu->read_fails != NULL) return rl_status_new(RL_ACCESS_FAILED, npu->read_fails);
  npu->reads++;
  from->is_reading = !from->is_reading;
  if (from->is_reading) *is_pending = true;
  else memcpy(data, from->data, size);
  return NULL;
}

static rl_status *poll(void *delegate, rl_delegate_context *context, void *user_data, bool *is_pending) {
  struct delegate *self = (struct delegate *)delegate;
  struct buffer *x = (struct buffer *)rl_delegate_buffer(context, 0);
  struct buffer *y = (struct buffer *)rl_delegate_buffer(context, 1);
  ((struct npu *)user_data)->polls++;
  CHECK(x != NULL && y != NULL && x->bytes >= WIDTH * sizeof(float));
  *is_pending = --self->polls_left > 0;
  if (*is_pending) return NULL;
  if (rl_delegate_has_tracer(context)) report(context, self->npu->has_timestamps);
  compute(self, x->data, y->data, total_of(context));
  return NULL;
}

static rl_status *wait(void *delegate, void *user_data) {
  CHECK(delegate != NULL);
  ((struct npu *)user_data)->waits++;
  return NULL;
}

/* -- Tests -- */

static rl_backend backend_of(struct npu *npu, const rl_state_functions *states, const rl_device_functions *device) {
  static const char *const modes[] = {"exact", "fast"};
  static rl_option_spec specs[2];
  rl_backend backend = RL_BACKEND_INIT;
  memset(specs, 0, sizeof specs);
  specs[0].name = "scale";
  specs[0].default_value = rl_value_int(1);
  specs[0].about = "a factor of what is summed up";
  specs[1].name = "mode";
  specs[1].default_value = rl_value_string("exact");
  specs[1].about = "how it rounds";
  specs[1].choices = modes;
  specs[1].num_choices = 2;
  specs[1].only_at_load = 1;
  backend.name = "XnnpackBackend";
  backend.init = init;
  backend.execute = execute;
  backend.destroy = destroy;
  backend.user_data = npu;
  backend.options = specs;
  backend.num_options = 2;
  backend.set_option = set_option;
  backend.device_text = "npu, simulated";
  backend.limits = measure;
  backend.states = states;
  backend.device = device;
  return backend;
}

static rl_registry *registry_of(const rl_backend *backend) {
  rl_registry *registry;
  OK(rl_registry_new(&registry));
  OK(rl_registry_add_backend(registry, backend));
  return registry;
}

static rl_status *try_to_load(const rl_registry *registry, const rl_backend_option *option, rl_module **module) {
  rl_load_options options = RL_LOAD_OPTIONS_INIT;
  options.registry = registry;
  options.lower = "off";
  options.backend_options = option;
  options.num_backend_options = option != NULL;
  return rl_module_load(path_of(root, "tests/corpus/1.5.1/xnnpack.pte"), &options, module);
}

static rl_module *load(const rl_registry *registry, const rl_backend_option *option) {
  rl_module *module;
  OK(try_to_load(registry, option, &module));
  return module;
}

/* Runs the program on numbers whose sum is 21, and returns its first output. */
static float run(rl_module *module, rl_session *session, rl_delegate_event_fn on_event, void *event_data) {
  const float x[WIDTH] = {1, 2, 3, 4, 5, 6};
  const int64_t sizes[] = {1, WIDTH};
  const rl_value input = rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 2, x, sizeof x);
  const rl_value *outputs;
  rl_run_options options = RL_RUN_OPTIONS_INIT;
  options.session = session;
  options.on_delegate_event = on_event;
  options.event_data = event_data;
  OK(rl_module_run(module, "forward", &input, 1, &options, &outputs, NULL));
  CHECK(floats(outputs[0].as.tensor)[1] == 2 * floats(outputs[0].as.tensor)[0]);
  return floats(outputs[0].as.tensor)[0];
}

struct saved {
  char data[256];
  size_t size;
};

static void keep(const void *data, size_t size, void *write_data) {
  struct saved *saved = (struct saved *)write_data;
  CHECK(saved->size + size <= sizeof saved->data);
  memcpy(saved->data + saved->size, data, size);
  saved->size += size;
}

static void sessions(rl_module *module, bool has_own) {
  struct saved saved = {{0}, 0};
  rl_session *first, *second;
  OK(rl_session_new(module, &first));
  CHECK(run(module, first, NULL, NULL) == 21 && run(module, first, NULL, NULL) == 42);
  OK(rl_session_fork(first, &second));
  CHECK(run(module, first, NULL, NULL) == 63 && run(module, second, NULL, NULL) == 63);
  OK(rl_session_clear(first));
  CHECK(run(module, first, NULL, NULL) == 21 && run(module, second, NULL, NULL) == 84);
  OK(rl_session_save(second, keep, &saved));
  FAILS(rl_session_save(second, NULL, NULL), RL_INVALID_ARGUMENT, "NULL");
  OK(rl_session_restore(first, saved.data, saved.size));
  CHECK(run(module, first, NULL, NULL) == 105 && run(module, second, NULL, NULL) == 105);
  FAILS(rl_session_restore(first, saved.data, saved.size - 1), RL_INVALID_EXTERNAL_DATA, "");
  if (has_own) {
    FAILS(rl_session_rewind(first, 1), RL_NOT_SUPPORTED, "only the beginning is known");
    OK(rl_session_rewind(first, 0));
    CHECK(run(module, first, NULL, NULL) == 21);
  } else {
    FAILS(rl_session_rewind(first, 0), RL_NOT_IMPLEMENTED, "state");
  }
  rl_session_free(first);
  rl_session_free(second);
}

struct events {
  int begun, ended, timed;
};

static void on_event(const rl_delegate_event *event, uint32_t phase, uint64_t start, uint64_t end, void *user_data) {
  struct events *events = (struct events *)user_data;
  CHECK(event->name.size == 10 && memcmp(event->name.data, "accumulate", 10) == 0);
  CHECK(event->value.size == 0 && event->step == 0);
  CHECK(event->has_cost && event->flops == 2 * WIDTH && event->bytes == 4 * WIDTH);
  if (phase == RL_PHASE_BEGIN) events->begun++;
  if (phase == RL_PHASE_END) events->ended++;
  if (phase == RL_PHASE_TIMED) {
    CHECK(start == 100 && end == 250);
    events->timed++;
  } else {
    CHECK(start == 0 && end == 0);
  }
}

static void runs(bool has_own_states, bool has_device) {
  struct npu npu;
  rl_state_functions states = RL_STATE_FUNCTIONS_INIT;
  rl_device_functions device = RL_DEVICE_FUNCTIONS_INIT;
  struct events events = {0, 0, 0};
  memset(&npu, 0, sizeof npu);
  npu.has_device = has_device;
  npu.has_timestamps = has_device;
  states.describe = describe;
  if (has_own_states) {
    states.create = create;
    states.destroy = destroy_state;
    states.clear = clear;
    states.rewind = rewind_state;
    states.fork = fork_state;
    states.save = save;
    states.restore = restore;
  }
  device.kind = "simulated";
  device.memory = memory;
  device.allocate = allocate;
  device.free = free_buffer;
  device.write = write_buffer;
  device.read = read_buffer;
  device.poll = poll;
  device.wait = wait;
  const rl_backend backend = backend_of(&npu, &states, has_device ? &device : NULL);
  rl_registry *registry = registry_of(&backend);
  rl_module *module = load(registry, NULL);
  /* The module's own state goes on from call to call. */
  CHECK(run(module, NULL, NULL, NULL) == 21 && run(module, NULL, NULL, NULL) == 42);
  CHECK(run(module, NULL, on_event, &events) == 63);
  CHECK(events.begun == 1 && events.ended == 1 && events.timed == (has_device ? 1 : 0));
  if (has_device) {
    /* Each call copies its input to the device, and its output back. */
    CHECK(npu.buffers == 2 && npu.writes == 3 && npu.reads == 6 && npu.polls == 6 && npu.waits >= 3);
  } else {
    CHECK(npu.buffers == 0 && npu.writes == 0 && npu.polls == 0);
  }
  sessions(module, has_own_states);
  CHECK(npu.delegates == 1 && npu.states == (has_own_states ? 1 : 0));
  if (has_device) {
    const float x[WIDTH] = {0};
    const int64_t sizes[] = {1, WIDTH};
    const rl_value input = rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 2, x, sizeof x);
    npu.read_fails = "the device is gone";
    FAILS(rl_module_run(module, "forward", &input, 1, NULL, NULL, NULL), RL_ACCESS_FAILED, "the device is gone");
  }
  rl_module_free(module);
  rl_registry_free(registry);
  CHECK(npu.delegates == 0 && npu.states == 0 && npu.buffers == 0);
}

static void options(void) {
  struct npu npu;
  rl_state_functions states = RL_STATE_FUNCTIONS_INIT;
  memset(&npu, 0, sizeof npu);
  states.describe = describe;
  rl_backend backend = backend_of(&npu, &states, NULL);
  rl_registry *registry = registry_of(&backend);
  rl_backend_option option = {"XnnpackBackend", "scale", rl_value_int(2)};
  rl_module *module = load(registry, &option);
  CHECK(run(module, NULL, NULL, NULL) == 42);
  option.value = rl_value_int(3);
  OK(rl_module_set_option(module, &option));
  CHECK(run(module, NULL, NULL, NULL) == 105);
  option.value = rl_value_int(-1);
  FAILS(rl_module_set_option(module, &option), RL_INVALID_ARGUMENT, "a negative scale");
  option.value = rl_value_bool(true);
  FAILS(rl_module_set_option(module, &option), RL_INVALID_TYPE, "expected an int");
  option.name = "mode";
  option.value = rl_value_string("exact");
  FAILS(rl_module_set_option(module, &option), RL_NOT_SUPPORTED, "only when a method is loaded");
  rl_device_limits limits = RL_DEVICE_LIMITS_INIT;
  OK(rl_module_limits(module, "XnnpackBackend", &limits));
  CHECK(limits.device.size == 14 && memcmp(limits.device.data, "npu, simulated", 14) == 0);
  CHECK(limits.flop_rate == 2e9 && limits.byte_rate == 1e9);
  FAILS(rl_module_limits(module, "no such backend", &limits), RL_NOT_FOUND, "no such backend");
  FAILS(rl_module_limits(module, "XnnpackBackend", NULL), RL_INVALID_ARGUMENT, "NULL");
  rl_module_free(module);
  backend.limits = NULL;
  rl_registry *silent = registry_of(&backend);
  module = load(silent, NULL);
  FAILS(rl_module_limits(module, "XnnpackBackend", &limits), RL_NOT_SUPPORTED, "cannot measure");
  rl_module_free(module);
  rl_registry_free(silent);
  option.value = rl_value_string("slow");
  FAILS(try_to_load(registry, &option, &module), RL_INVALID_TYPE, "expected exact or fast");
  rl_registry_free(registry);
}

static void refused_backends(void) {
  struct npu npu;
  rl_registry *registry;
  rl_state_functions states = RL_STATE_FUNCTIONS_INIT;
  rl_device_functions device = RL_DEVICE_FUNCTIONS_INIT;
  memset(&npu, 0, sizeof npu);
  OK(rl_registry_new(&registry));
  rl_backend backend = backend_of(&npu, &states, NULL);
  FAILS(rl_registry_add_backend(registry, &backend), RL_INVALID_ARGUMENT, "states->describe` is NULL");
  states.describe = describe;
  backend.device = &device;
  FAILS(rl_registry_add_backend(registry, &backend), RL_INVALID_ARGUMENT, "device->kind` is NULL");
  device.kind = "simulated";
  FAILS(rl_registry_add_backend(registry, &backend), RL_INVALID_ARGUMENT, "device->memory` is NULL");
  device.memory = memory;
  FAILS(rl_registry_add_backend(registry, &backend), RL_INVALID_ARGUMENT, "device->allocate` is NULL");
  device.allocate = allocate;
  FAILS(rl_registry_add_backend(registry, &backend), RL_INVALID_ARGUMENT, "device->write` is NULL");
  device.write = write_buffer;
  FAILS(rl_registry_add_backend(registry, &backend), RL_INVALID_ARGUMENT, "device->read` is NULL");
  device.read = read_buffer;
  OK(rl_registry_add_backend(registry, &backend));
  rl_option_spec spec = backend.options[1];
  backend.options = &spec;
  backend.num_options = 1;
  spec.default_value = rl_value_string("slow");
  FAILS(rl_registry_add_backend(registry, &backend), RL_INVALID_ARGUMENT, "not one of its choices");
  spec.default_value = rl_value_double(1);
  FAILS(rl_registry_add_backend(registry, &backend), RL_INVALID_TYPE, "expected a bool, an int or a string");
  spec.name = NULL;
  FAILS(rl_registry_add_backend(registry, &backend), RL_INVALID_ARGUMENT, "NULL");
  rl_registry_free(registry);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  root = argv[1];
  for (int own = 0; own < 2; own++) {
    for (int device = 0; device < 2; device++) runs(own, device);
  }
  options();
  refused_backends();
  printf("a backend with options, states, events and a device\n");
  return 0;
}
