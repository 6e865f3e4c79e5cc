#include <rushlight.h>
