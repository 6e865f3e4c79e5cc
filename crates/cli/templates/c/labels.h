/* Reads names, one a line. */
#ifndef LABELS_H
#define LABELS_H

#include <stdio.h>
#include <string.h>

/* Writes the name of a line, counted from 0, to `name`; the number of the line if the file has no such line. */
static const char *label(const char *path, int line, char *name, size_t size) {
  FILE *file = fopen(path, "r");
  int at = 0, found = 0;
  while (file != NULL && !found && fgets(name, (int)size, file) != NULL) found = at++ == line;
  if (file != NULL) fclose(file);
  if (!found) snprintf(name, size, "%d", line);
  name[strcspn(name, "\r\n")] = 0;
  return name;
}

#endif
