package org.pytorch.executorch.internal;

import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.locks.ReentrantLock;

/**
 * An object of the native library, which is freed once: when it is closed, or when the Java object that owns it is collected.
 * Older Androids have no {@code Cleaner}.
 *
 * <p>Whoever uses the object holds {@link #lock}, so that nobody frees it meanwhile.
 */
public final class NativeHandle extends PhantomReference<Object> {
  /** Does something with an object of the library. */
  public interface Use {
    void with(long pointer);
  }

  private static final ReferenceQueue<Object> QUEUE = new ReferenceQueue<>();
  private static final Set<NativeHandle> ALL = Collections.synchronizedSet(new HashSet<>());

  static {
    Thread collector = new Thread(NativeHandle::collect, "rushlight-collector");
    collector.setDaemon(true);
    collector.start();
  }

  /** Held by the one thread that uses the object. */
  public final ReentrantLock lock = new ReentrantLock();

  private final Use free;
  private long pointer;

  public NativeHandle(Object owner, long pointer, Use free) {
    super(owner, QUEUE);
    this.pointer = pointer;
    this.free = free;
    ALL.add(this);
  }

  /** Returns the address of the object, or 0 if it has been closed, or not been made yet. */
  public synchronized long pointer() {
    return pointer;
  }

  /** Hands over the object, where there was none. */
  public synchronized void set(long made) {
    pointer = made;
  }

  /** Frees the object, which no thread may use. */
  public synchronized void close() {
    ALL.remove(this);
    long freed = pointer;
    pointer = 0;
    if (freed != 0) {
      free.with(freed);
    }
  }

  private static void collect() {
    while (true) {
      try {
        NativeHandle handle = (NativeHandle) QUEUE.remove();
        handle.lock.lock();
        try {
          handle.close();
        } finally {
          handle.lock.unlock();
        }
      } catch (InterruptedException | RuntimeException ignored) {
        // Nobody waits for this thread, and what it could not free is not its last.
      }
    }
  }
}
