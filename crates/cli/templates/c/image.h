/* Reads images in binary PGM and PPM, which `magick cat.jpg cat.ppm` and `ffmpeg -i cat.jpg cat.ppm` write. */
#ifndef IMAGE_H
#define IMAGE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Reads a number of the header; a `#` starts a comment. Returns -1 if there is none. */
static int image_number(FILE *file) {
  int character = fgetc(file), number = 0;
  while (character == ' ' || character == '\t' || character == '\n' || character == '\r' || character == '#') {
    if (character == '#')
      while (character != '\n' && character != EOF) character = fgetc(file);
    character = fgetc(file);
  }
  if (character < '0' || character > '9') return -1;
  for (; character >= '0' && character <= '9' && number < 100000; character = fgetc(file)) number = 10 * number + character - '0';
  return number;
}

/* The byte of a channel at a pixel. A grey image has its only channel three times; colours become grey by their luma. */
static float image_byte(const uint8_t *bytes, int has, int at, int channels, int channel) {
  const uint8_t *pixel = bytes + (size_t)has * at;
  if (has == 1) return pixel[0];
  return channels == 3 ? pixel[channel] : 0.299f * pixel[0] + 0.587f * pixel[1] + 0.114f * pixel[2];
}

/*
 * Returns the elements of a tensor `[1, channels, height, width]`, which the caller frees, or NULL. An image of another size is resized.
 * Colours are normalized for torchvision's models. A model of grey images gets numbers from 0 to 1.
 */
static float *image_read(const char *path, int channels, int height, int width) {
  static const float mean[] = {0.485f, 0.456f, 0.406f}, std[] = {0.229f, 0.224f, 0.225f};
  FILE *file = fopen(path, "rb");
  uint8_t *bytes = NULL;
  float *elements = NULL;
  int kind = 0, columns = -1, rows = -1, max = -1;
  if (file != NULL && fgetc(file) == 'P') {
    kind = fgetc(file);
    columns = image_number(file);
    rows = image_number(file);
    max = image_number(file);
  }
  const int has = kind == '5' ? 1 : 3;
  if ((kind == '5' || kind == '6') && columns > 0 && rows > 0 && max == 255) {
    const size_t count = (size_t)has * columns * rows;
    bytes = (uint8_t *)malloc(count);
    elements = (float *)malloc(sizeof(float) * channels * height * width);
    if (bytes == NULL || fread(bytes, 1, count, file) != count) {
      free(elements);
      elements = NULL;
    }
  }
  if (file != NULL) fclose(file);
  if (elements == NULL) {
    fprintf(stderr, "%s: expected a binary PGM or PPM file of 8 bits\n", path);
    free(bytes);
    return NULL;
  }
  if (columns != width || rows != height)
    printf("%s is resized from %d x %d to %d x %d\n", path, columns, rows, width, height);
  for (int y = 0; y < height; y++) {
    for (int x = 0; x < width; x++) {
      /* Bilinear interpolation between the centres of pixels. */
      float row = (y + 0.5f) * rows / height - 0.5f, column = (x + 0.5f) * columns / width - 0.5f;
      row = row < 0 ? 0 : row > rows - 1 ? rows - 1 : row;
      column = column < 0 ? 0 : column > columns - 1 ? columns - 1 : column;
      const int top = (int)row, left = (int)column;
      const int bottom = top + 1 < rows ? top + 1 : top, right = left + 1 < columns ? left + 1 : left;
      const float down = row - top, across = column - left;
      for (int channel = 0; channel < channels; channel++) {
        const float above = image_byte(bytes, has, top * columns + left, channels, channel) * (1 - across) +
                            image_byte(bytes, has, top * columns + right, channels, channel) * across;
        const float below = image_byte(bytes, has, bottom * columns + left, channels, channel) * (1 - across) +
                            image_byte(bytes, has, bottom * columns + right, channels, channel) * across;
        const float value = (above * (1 - down) + below * down) / 255;
        elements[(channel * height + y) * width + x] = channels == 3 ? (value - mean[channel]) / std[channel] : value;
      }
    }
  }
  free(bytes);
  return elements;
}

#endif
