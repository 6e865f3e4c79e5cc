package org.pytorch.executorch;

import java.util.ArrayList;
import java.util.List;
import org.jetbrains.annotations.NotNull;

/** Options of backends, by the names of backend and option. {@code rushlight backends} lists them. */
public final class BackendOptionsMap {
  private final List<String> backends = new ArrayList<>();
  private final List<String> keys = new ArrayList<>();
  private final List<Integer> values = new ArrayList<>();

  /** Sets an option. It replaces an earlier value. */
  @NotNull
  public BackendOptionsMap setInt(@NotNull String backendName, @NotNull String key, int value) {
    if (backendName == null || key == null) {
      throw new IllegalArgumentException("An option has the name of a backend and a key, got " + backendName + " and " + key);
    }
    for (int i = 0; i < keys.size(); i++) {
      if (backends.get(i).equals(backendName) && keys.get(i).equals(key)) {
        values.set(i, value);
        return this;
      }
    }
    backends.add(backendName);
    keys.add(key);
    values.add(value);
    return this;
  }

  public boolean isEmpty() {
    return keys.isEmpty();
  }

  String[] backends() {
    return backends.toArray(new String[0]);
  }

  String[] keys() {
    return keys.toArray(new String[0]);
  }

  int[] values() {
    int[] array = new int[values.size()];
    for (int i = 0; i < array.length; i++) {
      array[i] = values.get(i);
    }
    return array;
  }
}
