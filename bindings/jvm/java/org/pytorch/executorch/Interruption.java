package org.pytorch.executorch;

import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.spi.AbstractSelectableChannel;
import java.nio.channels.spi.AbstractSelector;
import java.util.Collections;
import java.util.Set;

/**
 * Ends a call when its thread is interrupted. Java reports an interrupt only to the selector or channel in which the thread waits.
 * This class is therefore a selector, and registers as the one in which the thread waits.
 */
final class Interruption extends AbstractSelector {
  private final Frame frame;

  /**
   * Guards {@link #caller}, and is not held while {@link #begin} and {@link #end} run: these take a lock of the thread, which JDK 17
   * holds when it calls {@link #wakeup}.
   */
  private final Object callerLock = new Object();

  /** The thread of the running call. */
  private Thread caller;

  Interruption(Frame frame) {
    super(null);
    this.frame = frame;
  }

  void beginCall() {
    setCaller(Thread.currentThread());
    begin();
  }

  void endCall() {
    end();
    setCaller(null);
  }

  private void setCaller(Thread thread) {
    synchronized (callerLock) {
      caller = thread;
    }
  }

  /** Ends the call. JDK 25 calls it without a lock: the call may have ended, and a call of another thread may be running. */
  @Override
  public Selector wakeup() {
    synchronized (callerLock) {
      if (caller != null && caller.isInterrupted()) {
        frame.interrupt();
      }
    }
    return this;
  }

  @Override
  protected void implCloseSelector() {}

  @Override
  protected SelectionKey register(AbstractSelectableChannel channel, int operations, Object attachment) {
    throw new UnsupportedOperationException();
  }

  @Override
  public Set<SelectionKey> keys() {
    return Collections.emptySet();
  }

  @Override
  public Set<SelectionKey> selectedKeys() {
    return Collections.emptySet();
  }

  @Override
  public int selectNow() {
    return 0;
  }

  @Override
  public int select(long timeout) {
    return 0;
  }

  @Override
  public int select() {
    return 0;
  }
}
