package org.pytorch.executorch.internal;

import java.util.ArrayList;
import java.util.List;

/** Options by name, with values as text. */
public final class NamedOptions {
  private final List<String> names = new ArrayList<>();
  private final List<String> values = new ArrayList<>();

  public NamedOptions() {}

  public NamedOptions(NamedOptions other) {
    names.addAll(other.names);
    values.addAll(other.values);
  }

  /** Adds an option. */
  public void add(String name, String value) {
    if (name == null || value == null) {
      throw new IllegalArgumentException("The name and the value of an option must be not null");
    }
    names.add(name);
    values.add(value);
  }

  public String[] names() {
    return names.toArray(new String[0]);
  }

  public String[] values() {
    return values.toArray(new String[0]);
  }
}
