/* Reads recordings. */
#ifndef WAV_H
#define WAV_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t wav_number(const uint8_t *bytes, int count) {
  uint32_t number = 0;
  while (count-- > 0) number = number << 8 | bytes[count];
  return number;
}

/*
 * Returns the samples of a WAV file of 16 bits from -1 to 1, the mean of its channels, which the caller frees; or NULL. Writes their
 * number to `count`.
 */
static float *wav_read(const char *path, uint32_t rate, size_t *count) {
  FILE *file = fopen(path, "rb");
  uint8_t head[16];
  uint32_t channels = 0, size = 0;
  float *samples = NULL;
  int is_wav = file != NULL && fread(head, 1, 12, file) == 12 && memcmp(head, "RIFF", 4) == 0 && memcmp(head + 8, "WAVE", 4) == 0;
  while (is_wav && fread(head, 1, 8, file) == 8) {
    size = wav_number(head + 4, 4);
    const int is_data = memcmp(head, "data", 4) == 0;
    if (memcmp(head, "fmt ", 4) == 0 && size >= 16) {
      if (fread(head, 1, 16, file) != 16) break;
      channels = wav_number(head + 4, 4) == rate && wav_number(head + 14, 2) == 16 ? wav_number(head + 2, 2) : 0;
      size -= 16;
    } else if (is_data && channels > 0) {
      break;
    }
    if (fseek(file, (long)(size + size % 2), SEEK_CUR) != 0) break;
    size = 0;
  }
  *count = channels > 0 ? size / 2 / channels : 0;
  if (*count > 0) samples = (float *)malloc(sizeof(float) * *count);
  for (size_t at = 0; samples != NULL && at < *count; at++) {
    float sum = 0;
    for (uint32_t channel = 0; channel < channels; channel++) {
      uint8_t bytes[2] = {0, 0};
      if (fread(bytes, 1, 2, file) != 2) *count = at;
      sum += (int16_t)wav_number(bytes, 2);
    }
    samples[at] = sum / channels / 32768;
  }
  if (file != NULL) fclose(file);
  if (samples == NULL) fprintf(stderr, "%s: expected a WAV file of 16 bits at %u Hz\n", path, (unsigned)rate);
  return samples;
}

#endif
