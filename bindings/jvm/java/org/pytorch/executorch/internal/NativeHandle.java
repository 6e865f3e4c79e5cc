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
 * <p>A thread holds {@link #lock} while it uses the object, so that no other thread frees it meanwhile.
 */
public final class NativeHandle extends PhantomReference<Object> {
  /** An operation on an object of the library. */
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

  /** Returns the address of the object; 0 if it is closed or not made yet. */
  public synchronized long pointer() {
    return pointer;
  }

  /** Sets the object. There must be none yet. */
  public synchronized void set(long made) {
    pointer = made;
  }

  /** Frees the object. No thread may be using it. */
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
        // An error must not end this thread: it has other objects to free.
      }
    }
  }
}
