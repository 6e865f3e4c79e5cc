/* What the programs of this folder have in common: each loads the addition of two tensors of 2 x 3 floats and calls it on request. A line
 * of input is a number of batches, its answer the nanoseconds of one call: the median of the batches. */
#ifndef CALLERS_H
#define CALLERS_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CALLS = 100, MAX_BATCHES = 10000 };

static void require_that(int condition, const char *what) {
  if (condition) return;
  printf("error %s\n", what);
  exit(1);
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Answers until the input ends. `call` returns the first element of the sum, which is 3. */
static int answer_all(float (*call)(void)) {
  static double samples[MAX_BATCHES];
  int batches;
  while (scanf("%d", &batches) == 1) {
    require_that(batches > 0 && batches <= MAX_BATCHES, "too many batches");
    for (int batch = 0; batch < batches; batch++) {
      struct timespec begin, end;
      float sum = 0;
      clock_gettime(CLOCK_MONOTONIC, &begin);
      for (int i = 0; i < CALLS; i++) sum += call();
      clock_gettime(CLOCK_MONOTONIC, &end);
      require_that(sum == 3.0f * CALLS, "a wrong sum");
      samples[batch] = ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / CALLS;
    }
    qsort(samples, (size_t)batches, sizeof *samples, by_size);
    printf("%f\n", samples[batches / 2]);
    fflush(stdout);
  }
  return 0;
}

#endif
