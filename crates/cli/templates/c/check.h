/* Ends the program at an error of the library. */
#ifndef CHECK_H
#define CHECK_H

#include <rushlight.h>
#include <stdio.h>
#include <stdlib.h>

static void check(rl_status *status) {
  if (status == NULL) return;
  fprintf(stderr, "%s\n", rl_status_text(status));
  rl_status_free(status);
  exit(1);
}

#endif
