package org.pytorch.executorch;

import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.spi.AbstractSelectableChannel;
import java.nio.channels.spi.AbstractSelector;
import java.util.Collections;
import java.util.Set;

/**
 * Ends a call when its thread is interrupted. Java tells nobody of an interrupt but selectors and channels in which the thread waits,
 * so that this is a selector in which it seems to wait.
 */
final class Interruption extends AbstractSelector {
  private final Frame frame;

  /**
   * Guards {@link #caller}, and is not held while {@link #begin} and {@link #end} run: these take a lock of the thread, which JDK 17
   * holds when it calls {@link #wakeup}.
   */
  private final Object callerLock = new Object();

  /** The thread whose call runs. */
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

  /** Ends the call. JDK 25 calls it without a lock: also after the end of the call that it was meant for, in one of another thread. */
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
