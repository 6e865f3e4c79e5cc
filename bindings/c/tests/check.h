/* What the tests have in common: checks that name their line. */
#ifndef CHECK_H
#define CHECK_H

#include <rushlight.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fails the test unless a condition holds. */
#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition);       \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

/* Fails the test if a call failed. */
#define OK(call) check_ok((call), __FILE__, __LINE__)

/* Fails the test unless a call failed with this code and with this text in its description. */
#define FAILS(call, code, text) check_fails((call), (code), (text), __FILE__, __LINE__)

static inline void check_ok(rl_status *status, const char *file, int line) {
  if (status == NULL) return;
  fprintf(stderr, "%s:%d: %s\n", file, line, rl_status_text(status));
  exit(1);
}

static inline void check_fails(rl_status *status, uint32_t code, const char *text, const char *file, int line) {
  if (status == NULL || rl_status_code(status) != code || strstr(rl_status_text(status), text) == NULL) {
    fprintf(stderr, "%s:%d: expected %u with `%s`, got %s\n", file, line, (unsigned)code, text,
            status == NULL ? "success" : rl_status_text(status));
    exit(1);
  }
  rl_status_free(status);
}

/* Joins two parts of a path, in one of several buffers that take turns. */
static inline const char *path_of(const char *folder, const char *name) {
  static char paths[8][1024];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

/* The first element of a tensor of floats. */
static inline float *floats(rl_tensor tensor) {
  CHECK(tensor.dtype == RL_DTYPE_FLOAT32);
  return (float *)tensor.data;
}

/* True if numbers are the same but for a tolerance, infinities and NaN included. */
static inline bool is_near(double a, double b, double tolerance) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  return a == b || fabs(a - b) <= tolerance * (1 + fabs(b));
}

#endif
